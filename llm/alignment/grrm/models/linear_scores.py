"""Token scores of hidden states under a large output layer, without the logits of all tokens at the same time."""

from __future__ import annotations

from typing import Any

import paddle
from paddle.autograd import PyLayer

from grrm.models.cpu_layers.needs_grad import note_inputs, only_wanted
from grrm.models.cpu_layers.operators import check_labels
from grrm.models.cpu_layers.output_layer import is_fused
from grrm.models.cpu_layers.precision import current_precision
from grrm.models.output_layer import output_layer

LOGITS_AT_ONCE = 64 * 2**20  # bytes; fewer are kept for the backward pass, which then need not compute them again


def scores_by_parts(head: Any, n_rows: int) -> bool:
    """Whether the logits of `n_rows` tokens under this output layer (a PaddleNLP LM head) are too many to keep.

    Not where the output layer is divided among ranks: each then has a part of every token's logits. With products in
    bfloat16 however few they are, since Paddle's operators on the CPU have none.
    """
    if head.weight.is_distributed:
        return False
    rounds = current_precision() != "float32" and is_fused(head.weight)
    return rounds or n_rows * head.config.vocab_size * 4 > LOGITS_AT_ONCE


def linear_scores(
    hidden_NH: paddle.Tensor, head: Any, labels_N: paddle.Tensor
) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    """Log-probability of each label, entropy and log-normaliser of the softmax, [N] float32, each with its gradient.

    The backward pass computes the logits once more instead of keeping them; where the loss is at hand, `chunked_loss`
    need not. C++ kernels in float32 on the CPU, Paddle operators elsewhere: products in the weights' type, the rest in
    float32. Raises ValueError for a label outside the vocabulary.
    """
    return LinearScores.apply(hidden_NH, head.weight, labels_N, bool(head.transpose_y))


class LinearScores(PyLayer):
    """The scores of `linear_scores` for weights [V, H] where `by_word`, else [H, V]."""

    @staticmethod
    def forward(
        ctx: Any, hidden_NH: paddle.Tensor, weight: paddle.Tensor, labels_N: paddle.Tensor, by_word: bool
    ) -> Any:
        check_labels(labels_N, weight.shape[0 if by_word else 1])
        layer = output_layer(weight, by_word, for_weight=False)
        parts = [
            layer.scores(hidden_NH[part], labels_N[part])[1]
            for part in parts_of(hidden_NH.shape[0], layer.rows_at_once)
        ]
        scores = [paddle.concat(list(of_parts)) for of_parts in zip(*parts, strict=True)]
        note_inputs(ctx, hidden_NH, weight, labels_N)
        ctx.by_word = by_word
        ctx.save_for_backward(hidden_NH, weight, labels_N, *scores)
        return tuple(scores)

    @staticmethod
    def backward(ctx: Any, *gradients_N: paddle.Tensor) -> Any:
        hidden_NH, weight, labels_N, *scores = ctx.saved_tensor()
        layer = output_layer(weight, ctx.by_word, ctx.wanted[1])
        of_hidden = []
        for part in parts_of(hidden_NH.shape[0], layer.rows_at_once):
            given = [tuple(one_N[part] for one_N in three) for three in (scores, gradients_N)]
            rows_RH = hidden_NH[part]
            of_hidden.append(layer.pull(layer.logits(rows_RH), rows_RH, labels_N[part], *given, ctx.wanted[0]))
        found_NH = paddle.concat(of_hidden) if ctx.wanted[0] else None
        return only_wanted(ctx, found_NH, layer.of_weight(), None)


def parts_of(n_rows: int, at_once: int) -> list[slice]:
    """`n_rows` rows in parts of `at_once`; one that is empty where there are none."""
    return [slice(start, min(start + at_once, n_rows)) for start in range(0, max(n_rows, 1), at_once)]
