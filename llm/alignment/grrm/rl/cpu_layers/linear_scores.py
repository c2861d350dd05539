"""Token scores of hidden states under an output layer in C++ kernels, a part of the rows after the other."""

from __future__ import annotations

from typing import Any

import paddle
from paddle.autograd import PyLayer

from grrm.engine.native import available
from grrm.rl.cpu_layers.fused import call_kernel, check_labels, new_floats
from grrm.rl.cpu_layers.wanted import note_inputs, only_wanted
from grrm_csrc.blas import sgemm_address

ROWS_AT_ONCE = 256  # enough for a matrix product at full speed


def is_fused(weight: paddle.Tensor) -> bool:
    """Whether `FusedLinearScores` runs for an output layer of these weights, here."""
    return (
        weight.dtype == paddle.float32 and weight.place.is_cpu_place() and available() and sgemm_address() is not None
    )


class FusedLinearScores(PyLayer):
    """Log-probability, entropy and log-normaliser [N] of hidden states [N, H], weights [V, H] where `by_word`."""

    @staticmethod
    def forward(
        ctx: Any, hidden_NH: paddle.Tensor, weight: paddle.Tensor, labels_N: paddle.Tensor, by_word: bool
    ) -> Any:
        rows, width = hidden_NH.shape
        vocab = weight.shape[0 if by_word else 1]
        check_labels(labels_N, vocab)
        scores = [new_floats(rows) for _ in range(3)]
        ctx.sizes = (rows, width, vocab, int(by_word), ROWS_AT_ONCE)
        _call("grrm_linear_scores", hidden_NH, weight, labels_N, *scores, *ctx.sizes)
        note_inputs(ctx, hidden_NH, weight, labels_N)
        _, entropy_N, lse_N = scores
        ctx.save_for_backward(hidden_NH, weight, labels_N, entropy_N, lse_N)
        return tuple(scores)

    @staticmethod
    def backward(ctx: Any, *gradients_N: paddle.Tensor) -> Any:
        hidden_NH, weight, labels_N, entropy_N, lse_N = ctx.saved_tensor()
        inputs = (hidden_NH, weight)
        made = [new_floats(*one.shape) if wanted else None for one, wanted in zip(inputs, ctx.wanted, strict=False)]
        scores = (labels_N, entropy_N, lse_N)
        _call("grrm_linear_scores_backward", *inputs, *scores, *gradients_N, *made, *ctx.sizes)
        return only_wanted(ctx, *made, None)


def _call(name: str, *arguments: Any) -> None:
    if call_kernel(name, sgemm_address(), *arguments) < 0:
        raise MemoryError(f"{name} has no room for {ROWS_AT_ONCE} rows of logits")
