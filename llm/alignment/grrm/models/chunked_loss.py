"""A loss over token scores under a large output layer whose logits are computed only once, some at a time.

The backward pass of a loss needs the logits that its forward pass needed: either all of them are kept, or they are
computed twice. But the policy losses add up over sequences, so the gradient of one sequence's scores is known as soon
as these are. Here a few sequences at a time go through the output layer forth and back before the next ones do: three
matrix products, as with all logits in memory, and no more logits than those of a few sequences. (As Liger Kernel does
it for cross entropy, arXiv:2410.10989; here the loss may join a sequence's tokens, as GSPO's does.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import paddle
from paddle.autograd import PyLayer

from grrm.models.cpu_layers.needs_grad import note_inputs, only_wanted
from grrm.models.cpu_layers.operators import check_labels
from grrm.models.linear_scores import parts_of
from grrm.models.output_layer import OutputLayer, Scores, output_layer

# The part of a loss that belongs to the sequences of this slice, from the scores of all their tokens.
LossOfScores = Callable[[Scores, slice], paddle.Tensor]


def chunked_loss(
    hidden_NH: paddle.Tensor, head: Any, labels_N: paddle.Tensor, lengths: Sequence[int], loss_of: LossOfScores
) -> paddle.Tensor:
    """The sum of `loss_of` over all sequences, with its gradient to hidden states and output layer.

    `lengths` are tokens per sequence, in the order of the rows; `loss_of` gets log-probability, entropy and
    log-normaliser of the tokens of some sequences that follow each other. A sequence of more tokens than the layer
    takes at once has its logits computed twice. The gradient can be had once, and there must be a token. Raises
    ValueError for a label outside the vocabulary.
    """
    return ChunkedLoss.apply(hidden_NH, head.weight, labels_N, bool(head.transpose_y), tuple(lengths), loss_of)


class ChunkedLoss(PyLayer):
    """Forward computes the gradient as well; backward hands it out."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: paddle.Tensor,
        weight: paddle.Tensor,
        labels_N: paddle.Tensor,
        by_word: bool,
        lengths: tuple[int, ...],
        loss_of: LossOfScores,
    ) -> paddle.Tensor:
        check_labels(labels_N, weight.shape[0 if by_word else 1])
        note_inputs(ctx, hidden_NH, weight, labels_N)
        for_hidden, for_weight, _ = ctx.wanted
        layer = output_layer(weight, by_word, for_weight)
        total, of_hidden = paddle.zeros([]), []
        # What a backward pass does is done here, and backward passes run outside of automatic casts.
        with paddle.amp.auto_cast(enable=False):
            for sequences, tokens in _runs(lengths, layer.rows_at_once):
                rows_RH, labels_R = hidden_NH[tokens], labels_N[tokens]
                loss, found = _forth_and_back(layer, rows_RH, labels_R, loss_of, sequences, ctx.wanted)
                total = total + loss
                of_hidden += found
        ctx.found = (paddle.concat(of_hidden) if for_hidden else None, layer.of_weight())
        return total

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> Any:
        # Handed out and scaled in place: the gradient of the weights is as large as they are.
        found, ctx.found = ctx.found, None
        factor = float(gradient)
        scaled = [one if one is None or factor == 1.0 else one.scale_(factor) for one in found]
        return only_wanted(ctx, *scaled, None)


def _runs(lengths: Sequence[int], at_once: int) -> Iterator[tuple[slice, slice]]:
    """Sequences that follow each other and have at most `at_once` tokens together, or one alone; and their tokens."""
    first = begin = end = 0
    for number, length in enumerate(lengths):
        if end > begin and end + length - begin > at_once:
            yield slice(first, number), slice(begin, end)
            first, begin = number, end
        end += length
    if end > begin:
        yield slice(first, len(lengths)), slice(begin, end)


def _forth_and_back(
    layer: OutputLayer,
    hidden_RH: paddle.Tensor,
    labels_R: paddle.Tensor,
    loss_of: LossOfScores,
    sequences: slice,
    wanted: Sequence[bool],
) -> tuple[paddle.Tensor, list[paddle.Tensor]]:
    """The loss of these tokens and, by parts, its gradient to their hidden states."""
    parts = parts_of(hidden_RH.shape[0], layer.rows_at_once)
    scored = [layer.scores(hidden_RH[part], labels_R[part])[1] for part in parts[:-1]]
    logits_RV, last = layer.scores(hidden_RH[parts[-1]], labels_R[parts[-1]])
    scored.append(last)
    scores_3R = tuple(paddle.concat(list(one)) for one in zip(*scored, strict=True))
    loss, gradients_3R = _gradients(scores_3R, loss_of, sequences)
    of_hidden = []
    if any(wanted[:2]):
        for part, scores in reversed(list(zip(parts, scored, strict=True))):
            rows_RH = hidden_RH[part]
            if logits_RV is None:
                logits_RV = layer.logits(rows_RH)
            given = tuple(one_R[part] for one_R in gradients_3R)
            of_hidden.append(layer.pull(logits_RV, rows_RH, labels_R[part], scores, given, wanted[0]))
            logits_RV = None
    return loss, of_hidden[::-1]


def _gradients(scores_3R: Scores, loss_of: LossOfScores, sequences: slice) -> tuple[paddle.Tensor, Scores]:
    """The loss, and its gradient to each score; zeros where it does not depend on one."""
    with paddle.enable_grad():
        leaves = [one_R.detach() for one_R in scores_3R]
        for leaf in leaves:
            leaf.stop_gradient = False
        loss = loss_of(tuple(leaves), sequences)
        if loss.stop_gradient:
            return loss, tuple(paddle.zeros_like(leaf) for leaf in leaves)
        found = paddle.grad([loss], leaves, allow_unused=True)
    gradients = (paddle.zeros_like(leaf) if one is None else one for one, leaf in zip(found, leaves, strict=True))
    return loss.detach(), tuple(gradients)
