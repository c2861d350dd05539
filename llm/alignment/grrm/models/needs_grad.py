"""Gradients only where they are needed: Paddle takes none, not a zero, for an input that is frozen."""

from __future__ import annotations

from typing import Any

import paddle


def note_needs_grad(ctx: Any, *inputs: paddle.Tensor) -> None:
    """Remember in a PyLayer's forward which of its tensor inputs, all given in order, take part in training."""
    ctx.needs_grad = [not tensor.stop_gradient for tensor in inputs]


def only_needed(ctx: Any, *gradients: paddle.Tensor | None) -> tuple[paddle.Tensor | None, ...]:
    """Return the backward pass's result: the gradient of each input in order, None where it was frozen."""
    return tuple(gradient if needed else None for gradient, needed in zip(gradients, ctx.needs_grad, strict=True))
