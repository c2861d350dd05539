"""Gradients only where they are wanted: Paddle takes none, not a zero, for an input that is frozen."""

from __future__ import annotations

from typing import Any

import paddle


def note_inputs(ctx: Any, *inputs: paddle.Tensor) -> None:
    """Remember in a PyLayer's forward which of its tensor inputs, all given in order, take part in training."""
    ctx.wanted = [not one.stop_gradient for one in inputs]


def only_wanted(ctx: Any, *gradients: paddle.Tensor | None) -> tuple[paddle.Tensor | None, ...]:
    """What the backward pass returns: the gradient of each input in order, None where it was frozen."""
    return tuple(gradient if is_wanted else None for gradient, is_wanted in zip(gradients, ctx.wanted, strict=True))
