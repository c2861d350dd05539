"""The C++ kernels as differentiable functions on Paddle tensors; float32."""

from __future__ import annotations

import ctypes
from typing import Any

import paddle
from paddle.autograd import PyLayer

from grrm_csrc.build import kernels


def available() -> bool:
    """True where the kernels could be compiled and loaded."""
    return kernels().library is not None


def _call(name: str, *arguments: Any) -> None:
    """Call a kernel: tensors go by address, whole numbers as int64, others as float32."""
    kept: list[paddle.Tensor] = []  # temporary copies have to live until the call returns

    def converted(argument: Any) -> Any:
        if isinstance(argument, paddle.Tensor):
            kept.append(argument if argument.is_contiguous() else argument.contiguous())
            return ctypes.c_void_p(kept[-1].data_ptr())
        return ctypes.c_int64(argument) if isinstance(argument, int) else ctypes.c_float(argument)

    getattr(kernels().library, name)(*map(converted, arguments))


class FusedRMSNorm(PyLayer):
    """x / sqrt(mean(x^2) + eps) * w over rows [N, H]."""

    @staticmethod
    def forward(ctx: Any, x_NH: paddle.Tensor, weight_H: paddle.Tensor, epsilon: float) -> paddle.Tensor:
        rows, width = x_NH.shape
        y_NH, inverse_N = paddle.empty([rows, width]), paddle.empty([rows])
        _call("grrm_rms_norm", x_NH, weight_H, y_NH, inverse_N, rows, width, float(epsilon))
        ctx.save_for_backward(x_NH, weight_H, inverse_N)
        return y_NH

    @staticmethod
    def backward(ctx: Any, grad_NH: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        x_NH, weight_H, inverse_N = ctx.saved_tensor()
        rows, width = x_NH.shape
        grad_x_NH, grad_weight_H = paddle.empty([rows, width]), paddle.empty([width])
        _call("grrm_rms_norm_backward", x_NH, weight_H, inverse_N, grad_NH, grad_x_NH, grad_weight_H, rows, width)
        return grad_x_NH, grad_weight_H


class FusedSwiGLU(PyLayer):
    """silu(gate) * up, operands of equal shape."""

    @staticmethod
    def forward(ctx: Any, gate: paddle.Tensor, up: paddle.Tensor) -> paddle.Tensor:
        y = paddle.empty(gate.shape)
        _call("grrm_swiglu", gate, up, y, gate.size)
        ctx.save_for_backward(gate, up)
        return y

    @staticmethod
    def backward(ctx: Any, grad: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        gate, up = ctx.saved_tensor()
        grad_gate, grad_up = paddle.empty(gate.shape), paddle.empty(gate.shape)
        _call("grrm_swiglu_backward", gate, up, grad, grad_gate, grad_up, gate.size)
        return grad_gate, grad_up


class FusedRotation(PyLayer):
    """Rotary embedding of [B, T, heads, D] by rows `positions_BT` of the tables cos and sin [P, D]."""

    @staticmethod
    def forward(
        ctx: Any, x: paddle.Tensor, cos_PD: paddle.Tensor, sin_PD: paddle.Tensor, positions_BT: paddle.Tensor
    ) -> paddle.Tensor:
        ctx.save_for_backward(cos_PD, sin_PD, positions_BT)
        return _rotated(x, cos_PD, sin_PD, positions_BT, 1.0)

    @staticmethod
    def backward(ctx: Any, grad: paddle.Tensor) -> tuple[paddle.Tensor, None, None, None]:
        return _rotated(grad, *ctx.saved_tensor(), -1.0), None, None, None


def _rotated(
    x: paddle.Tensor, cos_PD: paddle.Tensor, sin_PD: paddle.Tensor, positions_BT: paddle.Tensor, direction: float
) -> paddle.Tensor:
    batch, length, heads, width = x.shape
    y = paddle.empty(x.shape)
    _call("grrm_rotate", x, cos_PD, sin_PD, positions_BT, y, batch * length, heads, width, direction)
    return y


class FusedAttention(PyLayer):
    """softmax(q k^T / sqrt(D)) v over the tokens each one sees; q [B, T, H, D], k and v [B, T, K, D].

    `visible_3BT` int32 holds for each token the range of its prompt and the begin of its own segment, which ends with
    the token itself: see csrc/kernels/attention.h. Nothing is computed for tokens that are not seen.
    """

    @staticmethod
    def forward(
        ctx: Any, q: paddle.Tensor, k: paddle.Tensor, v: paddle.Tensor, visible_3BT: paddle.Tensor
    ) -> paddle.Tensor:
        batch, length, heads, width = q.shape
        out, lse = paddle.empty(q.shape), paddle.empty([batch, heads, length])
        sizes = (batch, length, heads, k.shape[2], width)
        _call("grrm_attention", q, k, v, *_ranges(visible_3BT), out, lse, *sizes)
        ctx.sizes = sizes
        ctx.save_for_backward(q, k, v, visible_3BT, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, grad: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor, None]:
        q, k, v, visible_3BT, out, lse = ctx.saved_tensor()
        dq, dk, dv = paddle.empty(q.shape), paddle.empty(k.shape), paddle.empty(v.shape)
        arguments = (q, k, v, *_ranges(visible_3BT), out, lse, grad, dq, dk, dv, *ctx.sizes)
        _call("grrm_attention_backward", *arguments)
        return dq, dk, dv, None


def _ranges(visible_3BT: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    return visible_3BT[0], visible_3BT[1], visible_3BT[2]


class FusedTokenScores(PyLayer):
    """log softmax(logits)[label] and the entropy of the softmax, both [N]; the entropy has no gradient."""

    @staticmethod
    def forward(ctx: Any, logits_NV: paddle.Tensor, labels_N: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        rows, vocab = logits_NV.shape
        logprobs_N, entropy_N, lse_N = paddle.empty([rows]), paddle.empty([rows]), paddle.empty([rows])
        _call("grrm_score_tokens", logits_NV, labels_N, logprobs_N, entropy_N, lse_N, rows, vocab)
        ctx.save_for_backward(logits_NV, labels_N, lse_N)
        entropy_N.stop_gradient = True
        ctx.mark_non_differentiable(entropy_N)
        return logprobs_N, entropy_N

    @staticmethod
    def backward(ctx: Any, grad_N: paddle.Tensor, *_: Any) -> tuple[paddle.Tensor, None]:
        logits_NV, labels_N, lse_N = ctx.saved_tensor()
        rows, vocab = logits_NV.shape
        grad_NV = paddle.empty([rows, vocab])
        _call("grrm_score_tokens_backward", logits_NV, labels_N, lse_N, grad_N, grad_NV, rows, vocab)
        return grad_NV, None
