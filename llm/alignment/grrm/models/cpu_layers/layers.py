"""Root-mean-square norm, gated unit and rotary embedding, with backward passes written out."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle.autograd import PyLayer

from grrm.models.cpu_kernels import note_needs_grad, only_needed
from grrm.models.cpu_layers import operators


class RMSNorm(PyLayer):
    """x / sqrt(mean(x^2) + eps) * w over rows [N, H], w [H]; float32."""

    @staticmethod
    def forward(ctx: Any, x_NH: paddle.Tensor, weight_H: paddle.Tensor, epsilon: float) -> paddle.Tensor:
        width = x_NH.shape[-1]
        mean_H1 = paddle.full([width, 1], 1.0 / width)
        inverse_N1 = paddle.rsqrt(paddle.matmul(x_NH * x_NH, mean_H1) + epsilon)
        note_needs_grad(ctx, x_NH, weight_H)
        ctx.save_for_backward(x_NH, weight_H, inverse_N1)
        return x_NH * paddle.matmul(inverse_N1, weight_H.unsqueeze(0))

    @staticmethod
    def backward(ctx: Any, grad_NH: paddle.Tensor) -> Any:
        """With r = 1/rms: dx = r*g*w - x * r^3/H * sum(g*w*x); dw = sum over rows of r*g*x."""
        x_NH, weight_H, inverse_N1 = ctx.saved_tensor()
        width = x_NH.shape[-1]
        product_NH = grad_NH * x_NH
        pull_N1 = paddle.matmul(product_NH, weight_H.unsqueeze(-1)) * inverse_N1 * inverse_N1 * inverse_N1
        direct_NH = grad_NH * paddle.matmul(inverse_N1, weight_H.unsqueeze(0))
        grad_x_NH = direct_NH - x_NH * paddle.matmul(pull_N1, paddle.full([1, width], 1.0 / width))
        return only_needed(ctx, grad_x_NH, paddle.matmul(inverse_N1, product_NH, transpose_x=True).squeeze(0))


def rms_norm(self: Any, hidden_states: paddle.Tensor) -> paddle.Tensor:
    """`forward` of PaddleNLP's RMSNorm layers."""
    width = hidden_states.shape[-1]
    rows_NH = hidden_states.astype("float32").reshape([-1, width])
    norm = operators.rms_norm if operators.available() else RMSNorm.apply
    normed_NH = norm(rows_NH, self.weight.astype("float32"), self.variance_epsilon)
    return normed_NH.reshape(hidden_states.shape).astype(self.weight.dtype)


class SwiGLU(PyLayer):
    """silu(gate) * up, operands of equal shape."""

    @staticmethod
    def forward(ctx: Any, gate: paddle.Tensor, up: paddle.Tensor) -> paddle.Tensor:
        open_ = F.sigmoid(gate)
        passed = gate * open_
        note_needs_grad(ctx, gate, up)
        ctx.save_for_backward(up, open_, passed)
        return passed * up

    @staticmethod
    def backward(ctx: Any, grad: paddle.Tensor) -> Any:
        """With s = sigmoid(gate): d silu = s + silu * (1 - s)."""
        up, open_, passed = ctx.saved_tensor()
        return only_needed(ctx, grad * up * (open_ + passed - passed * open_), grad * passed)


def swiglu(gate: paddle.Tensor, up: paddle.Tensor | None = None) -> paddle.Tensor:
    """silu(gate) * up; one fused tensor is split in halves."""
    if up is None:
        gate, up = gate.chunk(2, axis=-1)
    return (operators.swiglu if operators.available() else SwiGLU.apply)(gate, up)


@lru_cache(maxsize=8)
def _half_turn(width: int) -> paddle.Tensor:
    """[D, D] matrix R with x @ R = concat(-x[D/2:], x[:D/2])."""
    half = width // 2
    turn_DD = paddle.zeros([width, width])
    turn_DD[half:, :half] = -paddle.eye(half)
    turn_DD[:half, half:] = paddle.eye(half)
    return turn_DD


class Rotation(PyLayer):
    """x * cos + (x @ R) * sin; cos and sin have the shape of x, no gradient, and are the same in both halves."""

    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor, cos: paddle.Tensor, sin: paddle.Tensor) -> paddle.Tensor:
        ctx.save_for_backward(cos, sin)
        return x * cos + paddle.matmul(x, _half_turn(x.shape[-1])) * sin

    @staticmethod
    def backward(ctx: Any, grad: paddle.Tensor) -> tuple[paddle.Tensor, None, None]:
        """R is orthogonal and skew: the gradient is the rotation by the opposite angle."""
        cos, sin = ctx.saved_tensor()
        return grad * cos - paddle.matmul(grad, _half_turn(grad.shape[-1])) * sin, None, None


def rotate(q: paddle.Tensor, k: paddle.Tensor, cos: paddle.Tensor, sin: paddle.Tensor, position_ids: Any) -> Any:
    """Rotary embedding of queries and keys [B, T, heads, D]; `position_ids` None means 0, 1, 2, …"""
    width = q.shape[-1]
    cos, sin = (table.reshape([-1, width]) for table in (cos, sin))
    if operators.available():
        if position_ids is None:
            position_ids = paddle.arange(q.shape[1], dtype="int64").unsqueeze(0)
        positions_BT = position_ids.astype("int64").expand(q.shape[:2])
        first, last = int(positions_BT.min()), int(positions_BT.max())
        if first < 0 or last >= cos.shape[0]:
            raise ValueError(f"position ids from {first} to {last} of {cos.shape[0]}")
        return tuple(operators.rotate(x, cos, sin, positions_BT) for x in (q, k))
    if position_ids is None:
        cos, sin = (table[: q.shape[1]].reshape([1, -1, 1, width]) for table in (cos, sin))
    else:
        cos, sin = (table[position_ids].unsqueeze(2) for table in (cos, sin))
    return tuple(Rotation.apply(x, cos.expand_as(x), sin.expand_as(x)) for x in (q, k))
