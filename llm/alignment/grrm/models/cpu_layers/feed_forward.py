"""The gated unit of the feed-forward layer."""

from __future__ import annotations

from typing import Any

import paddle
import paddle.nn.functional as F
from paddle.autograd import PyLayer

from grrm.models.cpu_layers import operators
from grrm.models.needs_grad import note_needs_grad, only_needed


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
