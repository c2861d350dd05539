"""Token scores of hidden states under a large output layer, without the logits of all tokens at the same time."""

from __future__ import annotations

from typing import Any

import paddle
from paddle.autograd import PyLayer

from grrm.engine.native import available
from grrm.rl.cpu_layers.fused import call_kernel, check_labels, new_floats
from grrm.rl.cpu_layers.wanted import note_inputs, only_wanted
from grrm_csrc.blas import sgemm_address

LOGITS_AT_ONCE = 64 * 2**20  # bytes; fewer are kept for the backward pass, which then need not compute them again
ROWS_AT_ONCE = 256  # enough for a matrix product at full speed


def scores_by_parts(head: Any, n_rows: int) -> bool:
    """Whether `linear_scores` is there for this output layer (a PaddleNLP LM head) and worth its second product."""
    weight = head.weight
    return (
        n_rows * head.config.vocab_size * 4 > LOGITS_AT_ONCE
        and weight.dtype == paddle.float32
        and weight.place.is_cpu_place()
        and not weight.is_distributed
        and available()
        and sgemm_address() is not None
    )


def linear_scores(
    hidden_NH: paddle.Tensor, head: Any, labels_N: paddle.Tensor
) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    """Log-probability of each label, entropy and log-normaliser of the softmax, [N] each and each with its gradient.

    The backward pass computes the logits once more instead of keeping them. Raises ValueError for a label outside the
    vocabulary, MemoryError where there is no room for `ROWS_AT_ONCE` rows of logits.
    """
    return _LinearScores.apply(hidden_NH, head.weight, labels_N, bool(head.transpose_y))


class _LinearScores(PyLayer):
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
