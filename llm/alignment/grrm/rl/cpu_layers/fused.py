"""The C++ kernels as differentiable functions on Paddle tensors; float32."""

from __future__ import annotations

import ctypes
from typing import Any

import paddle
from paddle.autograd import PyLayer

from grrm.engine.native import OUT_OF_MEMORY
from grrm.rl.cpu_layers.wanted import note_inputs, only_wanted
from grrm_csrc.build import kernels

# What each argument of a kernel is: f, i and l are tensors of float32, int32 and int64 or None, n is a whole number, x
# any, b the addresses of a BLAS.
_SIGNATURES = {
    "grrm_rms_norm": "ffffnnx",
    "grrm_rms_norm_backward": "ffffffnn",
    "grrm_swiglu": "fffn",
    "grrm_swiglu_backward": "fffffn",
    "grrm_rotate": "ffflfnnnx",
    "grrm_score_tokens": "flfffnn",
    "grrm_score_tokens_backward": "flffffffnn",
    "grrm_pack_output_layer": "bfnnnnf",
    "grrm_linear_scores": "bffflffffnnnn",
    "grrm_linear_scores_backward": "bfffflfffffffnnnnn",
    "grrm_multiply": "bfffnnnnnx",
    "grrm_attention": "fffiiiffnnnnn",
    "grrm_attention_backward": "fffiiiffffffnnnnn",
}
_ANSWERING = frozenset({"grrm_pack_output_layer", "grrm_linear_scores", "grrm_linear_scores_backward", "grrm_multiply"})
_DTYPES = {"f": paddle.float32, "i": paddle.int32, "l": paddle.int64}
_NUMBERS = {"n": ctypes.c_int64, "x": ctypes.c_float, "b": lambda addresses: (ctypes.c_void_p * 4)(*addresses)}


def call_kernel(name: str, *arguments: Any) -> int:
    """Call a kernel, tensors by address, and return what it answers, if anything.

    Raises TypeError for a tensor of another type or on another device, MemoryError when the kernel runs out of memory.
    """
    kept: list[paddle.Tensor] = []  # temporary copies have to live until the call returns
    passed: list[Any] = []
    for kind, argument in zip(_SIGNATURES[name], arguments, strict=True):
        if kind in _NUMBERS:
            passed.append(_NUMBERS[kind](argument))
            continue
        if argument is None:
            passed.append(None)
            continue
        if argument.dtype != _DTYPES[kind] or not argument.place.is_cpu_place():
            raise TypeError(f"{name} takes {_DTYPES[kind]} on the CPU, not {argument.dtype} on {argument.place}")
        kept.append(argument if argument.is_contiguous() else argument.contiguous())
        passed.append(ctypes.c_void_p(kept[-1].data_ptr()))
    kernel = getattr(kernels().library, name)
    if name not in _ANSWERING:
        kernel(*passed)
        return 0
    kernel.restype = ctypes.c_int64
    answer = int(kernel(*passed))
    if answer == OUT_OF_MEMORY:
        raise MemoryError(f"{name} ran out of memory: use smaller micro-batches")
    return answer


def new_floats(*shape: int) -> paddle.Tensor:
    """A tensor of this shape with nothing in it yet."""
    return paddle.empty(list(shape), dtype="float32")


class FusedRMSNorm(PyLayer):
    """x / sqrt(mean(x^2) + eps) * w over rows [N, H]."""

    @staticmethod
    def forward(ctx: Any, x_NH: paddle.Tensor, weight_H: paddle.Tensor, epsilon: float) -> paddle.Tensor:
        rows, width = x_NH.shape
        y_NH, inverse_N = new_floats(rows, width), new_floats(rows)
        call_kernel("grrm_rms_norm", x_NH, weight_H, y_NH, inverse_N, rows, width, float(epsilon))
        note_inputs(ctx, x_NH, weight_H)
        ctx.save_for_backward(x_NH, weight_H, inverse_N)
        return y_NH

    @staticmethod
    def backward(ctx: Any, grad_NH: paddle.Tensor) -> Any:
        x_NH, weight_H, inverse_N = ctx.saved_tensor()
        rows, width = x_NH.shape
        grad_x_NH, grad_weight_H = new_floats(rows, width), new_floats(width)
        call_kernel("grrm_rms_norm_backward", x_NH, weight_H, inverse_N, grad_NH, grad_x_NH, grad_weight_H, rows, width)
        return only_wanted(ctx, grad_x_NH, grad_weight_H)


class FusedSwiGLU(PyLayer):
    """silu(gate) * up, operands of equal shape."""

    @staticmethod
    def forward(ctx: Any, gate: paddle.Tensor, up: paddle.Tensor) -> paddle.Tensor:
        y = new_floats(*gate.shape)
        call_kernel("grrm_swiglu", gate, up, y, gate.size)
        note_inputs(ctx, gate, up)
        ctx.save_for_backward(gate, up)
        return y

    @staticmethod
    def backward(ctx: Any, grad: paddle.Tensor) -> Any:
        gate, up = ctx.saved_tensor()
        grad_gate, grad_up = new_floats(*gate.shape), new_floats(*gate.shape)
        call_kernel("grrm_swiglu_backward", gate, up, grad, grad_gate, grad_up, gate.size)
        return only_wanted(ctx, grad_gate, grad_up)


class FusedRotation(PyLayer):
    """Rotary embedding of [B, T, heads, D] by rows `positions_BT` of the tables cos and sin [P, D]."""

    @staticmethod
    def forward(
        ctx: Any, x: paddle.Tensor, cos_PD: paddle.Tensor, sin_PD: paddle.Tensor, positions_BT: paddle.Tensor
    ) -> paddle.Tensor:
        ctx.save_for_backward(cos_PD, sin_PD, positions_BT)
        return _rotated(x, cos_PD, sin_PD, positions_BT, 1.0)

    @staticmethod
    def backward(ctx: Any, grad: paddle.Tensor) -> Any:
        return _rotated(grad, *ctx.saved_tensor(), -1.0), None, None, None


def _rotated(
    x: paddle.Tensor, cos_PD: paddle.Tensor, sin_PD: paddle.Tensor, positions_BT: paddle.Tensor, direction: float
) -> paddle.Tensor:
    batch, length, heads, width = x.shape
    y = new_floats(*x.shape)
    call_kernel("grrm_rotate", x, cos_PD, sin_PD, positions_BT, y, batch * length, heads, width, direction)
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
        out, lse = new_floats(*q.shape), new_floats(batch, heads, length)
        sizes = (batch, length, heads, k.shape[2], width)
        call_kernel("grrm_attention", q, k, v, *_ranges(visible_3BT), out, lse, *sizes)
        ctx.sizes = sizes
        note_inputs(ctx, q, k, v, visible_3BT)
        ctx.save_for_backward(q, k, v, visible_3BT, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, grad: paddle.Tensor) -> Any:
        q, k, v, visible_3BT, out, lse = ctx.saved_tensor()
        dq, dk, dv = new_floats(*q.shape), new_floats(*k.shape), new_floats(*v.shape)
        arguments = (q, k, v, *_ranges(visible_3BT), out, lse, grad, dq, dk, dv, *ctx.sizes)
        call_kernel("grrm_attention_backward", *arguments)
        return only_wanted(ctx, dq, dk, dv, None)


def _ranges(visible_3BT: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    return visible_3BT[0], visible_3BT[1], visible_3BT[2]


class FusedTokenScores(PyLayer):
    """log softmax(logits)[label], the entropy of the softmax and its log-normaliser, [N] each."""

    @staticmethod
    def forward(ctx: Any, logits_NV: paddle.Tensor, labels_N: paddle.Tensor) -> Any:
        rows, vocab = logits_NV.shape
        check_labels(labels_N, vocab)
        scores = [new_floats(rows) for _ in range(3)]
        call_kernel("grrm_score_tokens", logits_NV, labels_N, *scores, rows, vocab)
        _, entropy_N, lse_N = scores
        ctx.save_for_backward(logits_NV, labels_N, entropy_N, lse_N)
        return tuple(scores)

    @staticmethod
    def backward(ctx: Any, *gradients_N: paddle.Tensor) -> Any:
        logits_NV, labels_N, entropy_N, lse_N = ctx.saved_tensor()
        rows, vocab = logits_NV.shape
        grad_NV = new_floats(rows, vocab)
        scores = (logits_NV, labels_N, entropy_N, lse_N)
        call_kernel("grrm_score_tokens_backward", *scores, *gradients_N, grad_NV, rows, vocab)
        return grad_NV, None


def check_labels(labels_N: paddle.Tensor, vocab: int) -> None:
    """Raises ValueError for a label outside the vocabulary, behind which a kernel would read memory of others."""
    if labels_N.shape[0]:
        first, last = int(labels_N.min()), int(labels_N.max())
        if first < 0 or last >= vocab:
            raise ValueError(f"labels from {first} to {last} of a vocabulary of {vocab}")
