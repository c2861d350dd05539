"""A loss over token scores under a large LM head whose logits are computed only once, a chunk at a time.

The backward pass of a loss needs the logits that its forward pass needed: either all of them are kept, or they are
computed twice. But the policy losses add up over responses, so the gradient of one response's scores is available as
soon as these are.

So a few responses at a time go through the LM head forward and backward before the next ones do: three matrix products,
as with all logits in memory, and never more logits than those of a chunk. (As Liger Kernel does it for cross entropy,
arXiv:2410.10989; this loss may join a response's tokens, as GSPO's does.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import paddle
from paddle.autograd import PyLayer

from grrm.models.cpu_kernels import note_needs_grad, only_needed
from grrm.models.cpu_layers.operators import check_labels
from grrm.models.output_layer import HeadLayout, OutputLayer, Scores, output_layer
from grrm.models.packing import PackedTokens
from grrm.models.token_scores import (
    TokenScores,
    chunks_of,
    exceeds_chunk,
    scale_hidden,
    score_hidden,
    token_scores,
)

# The share that the responses of this slice (None: all) have in a loss, from the scores of all their tokens.
LossOfScores = Callable[[TokenScores, slice | None], paddle.Tensor]


def chunked_loss(
    hidden_NH: paddle.Tensor,
    head: Any,
    tokens: PackedTokens,
    loss_of: LossOfScores,
    *,
    temperature: float = 1.0,
    entropy_gradient: bool = False,
) -> paddle.Tensor:
    """The sum of `loss_of` over all responses, with its gradient to hidden states and LM head.

    Where all logits are few enough to keep, `loss_of` is called once; else once for every few responses, whose gradient
    is taken at once, so that the result can be differentiated only one time. A response of more tokens than a chunk has
    its logits computed twice. Raises ValueError for a label outside the vocabulary.
    """
    # Gradients of float16 need the loss scaled before they are computed, which is when the backward pass begins.
    is_half = paddle.float16 in (hidden_NH.dtype, head.weight.dtype)
    if is_half or not exceeds_chunk(head, hidden_NH.shape[0]):
        scores = score_hidden(
            hidden_NH, head, tokens.labels_N, temperature=temperature, entropy_gradient=entropy_gradient
        )
        return loss_of(scores, None)
    hidden_NH = scale_hidden(hidden_NH, temperature)
    layout = (HeadLayout.of(head), tuple(tokens.lengths_R), entropy_gradient)
    return ChunkedLoss.apply(hidden_NH, head.weight, tokens.labels_N, *layout, loss_of)


class ChunkedLoss(PyLayer):
    """Forward computes the gradient as well; backward returns it, scaled."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: paddle.Tensor,
        weight: paddle.Tensor,
        labels_N: paddle.Tensor,
        layout: HeadLayout,
        lengths_R: tuple[int, ...],
        entropy_gradient: bool,
        loss_of: LossOfScores,
    ) -> paddle.Tensor:
        check_labels(labels_N, layout.vocab_size(weight))
        note_needs_grad(ctx, hidden_NH, weight, labels_N)
        hidden_needs_grad, weight_needs_grad, _ = ctx.needs_grad
        layer = output_layer(weight, layout, hidden_needs_grad=hidden_needs_grad, weight_needs_grad=weight_needs_grad)
        total, hidden_grads = paddle.zeros([]), []
        # What a backward pass does is done here, and backward passes run outside of automatic casts.
        with paddle.amp.auto_cast(enable=False):
            for responses, part in _responses_in_chunks(lengths_R, layer.chunk_tokens):
                chunk = _Chunk(layer, hidden_NH[part], labels_N[part])
                leaves_3N = chunk.score()
                with paddle.enable_grad():
                    loss = loss_of(token_scores(leaves_3N, entropy_gradient), responses)
                total = total + loss.detach()
                if hidden_needs_grad or weight_needs_grad:
                    hidden_grads += chunk.backward(_gradients(loss, leaves_3N))
        ctx.gradients = (paddle.concat(hidden_grads) if hidden_needs_grad else None, layer.weight_grad())
        return total

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> tuple[paddle.Tensor | None, ...]:
        # Handed out and scaled in place: the gradient of the weights is as large as they are.
        gradients, ctx.gradients = ctx.gradients, None
        factor = float(gradient)
        scaled = [grad if grad is None or factor == 1.0 else grad.scale_(factor) for grad in gradients]
        return only_needed(ctx, *scaled, None)


def _responses_in_chunks(lengths_R: Sequence[int], chunk_tokens: int) -> Iterator[tuple[slice, slice]]:
    """Neighbouring responses of at most `chunk_tokens` tokens together, or a longer one alone; and their tokens."""
    first = begin = end = 0
    for number, length in enumerate(lengths_R):
        if end > begin and end + length - begin > chunk_tokens:
            yield slice(first, number), slice(begin, end)
            first, begin = number, end
        end += length
    if end > begin:
        yield slice(first, len(lengths_R)), slice(begin, end)


class _Chunk:
    """The tokens of some responses under the LM head; of more than fit at once only the last logits are kept."""

    def __init__(self, layer: OutputLayer, hidden_NH: paddle.Tensor, labels_N: paddle.Tensor) -> None:
        self.layer, self.hidden_NH, self.labels_N = layer, hidden_NH, labels_N
        self.parts = chunks_of(hidden_NH.shape[0], layer.chunk_tokens)

    def score(self) -> Scores:
        """Scores of all tokens, as leaves that collect gradients."""
        self._scored = [self.layer.scores(self.hidden_NH[part], self.labels_N[part])[1] for part in self.parts[:-1]]
        last = self.parts[-1]
        self._logits_NV, scores = self.layer.scores(self.hidden_NH[last], self.labels_N[last])
        self._scored.append(scores)
        leaves = [paddle.concat(list(score)).detach() for score in zip(*self._scored, strict=True)]
        for leaf in leaves:
            leaf.stop_gradient = False
        return leaves[0], leaves[1], leaves[2]

    def backward(self, gradients_3N: Scores) -> list[paddle.Tensor]:
        """Gradients of the hidden states, part by part; those of the weights add up in the output layer."""
        hidden_grads: list[Any] = []
        logits_NV = self._logits_NV
        for part, scores in reversed(list(zip(self.parts, self._scored, strict=True))):
            rows_NH = self.hidden_NH[part]
            if logits_NV is None:
                logits_NV = self.layer.logits(rows_NH)
            of_logprob_N, of_entropy_N, of_lse_N = (gradient_N[part] for gradient_N in gradients_3N)
            gradients = of_logprob_N, of_entropy_N, of_lse_N
            hidden_grads.append(self.layer.backward(logits_NV, rows_NH, self.labels_N[part], scores, gradients))
            logits_NV = self._logits_NV = None
        return hidden_grads[::-1]


def _gradients(loss: paddle.Tensor, leaves_3N: Scores) -> Scores:
    """Gradients of the loss to each score; zeros where it does not depend on one."""
    gradients: Sequence[paddle.Tensor | None] = (None, None, None)
    if not loss.stop_gradient:
        gradients = paddle.grad([loss], list(leaves_3N), allow_unused=True)
    of_logprob_N, of_entropy_N, of_lse_N = (
        paddle.zeros_like(leaf) if gradient is None else gradient
        for gradient, leaf in zip(gradients, leaves_3N, strict=True)
    )
    return of_logprob_N, of_entropy_N, of_lse_N
