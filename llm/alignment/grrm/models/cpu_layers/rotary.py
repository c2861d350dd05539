"""Rotary position embedding with the half turn as a matrix product instead of slices and a concatenation."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import paddle
from paddle.autograd import PyLayer

from grrm.models.cpu_layers import operators


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
