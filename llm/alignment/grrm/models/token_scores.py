"""Log-probability and entropy of response tokens from the hidden states that predict them.

Only these hidden states meet the LM head: prompts and padding, most of a batch, never do. Where logits of all tokens
would take much memory they are computed a chunk at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle
import paddle.nn.functional as F
from numpy.typing import NDArray
from paddle.autograd import PyLayer

from grrm.models.cpu_kernels import note_needs_grad, only_needed
from grrm.models.cpu_layers import operators
from grrm.models.cpu_layers.operators import check_labels
from grrm.models.cpu_layers.output_layer import is_fused
from grrm.models.cpu_layers.precision import current_precision
from grrm.models.output_layer import HeadLayout, Scores, output_layer
from grrm.models.packing import PackedTokens, lay_out
from grrm.models.pipeline_policy import numbers_of_tokens

LOGITS_AT_ONCE = 64 * 2**20  # bytes; fewer are kept for the backward pass, which then need not compute them again


class TokenScores(NamedTuple):
    """Per valid response token, flattened response by response (N): log-probability, and entropy in nats.

    The entropy has a gradient only where it was asked for.
    """

    logprobs_N: paddle.Tensor
    entropy_N: paddle.Tensor


def score_hidden(
    hidden_NH: paddle.Tensor,
    head: Any,
    labels_N: paddle.Tensor,
    *,
    temperature: float = 1.0,
    entropy_gradient: bool = False,
) -> TokenScores:
    """Scores of `labels_N` under the LM head, whose logits are divided by `temperature` (0 and 1 leave them).

    Raises ValueError for a label outside the vocabulary.
    """
    hidden_NH = scale_hidden(hidden_NH, temperature)
    if exceeds_chunk(head, hidden_NH.shape[0]):
        return token_scores(linear_scores(hidden_NH, head, labels_N), entropy_gradient)
    return score_logits(head(hidden_NH), labels_N, entropy_gradient)


def score_beside_largest(
    hidden_NH: paddle.Tensor, head: Any, labels_N: paddle.Tensor
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Log-probability of each label, and how far its logit lies below the largest one, [N] float32 each.

    The gap, which is zero or more, has no gradient. Raises ValueError for a label outside the vocabulary.
    """
    if exceeds_chunk(head, hidden_NH.shape[0]):
        logprobs_N, _, lse_N, largest_N = LinearScores.apply(
            hidden_NH, head.weight, labels_N, HeadLayout.of(head), True
        )
        return logprobs_N, F.relu(largest_N.detach() - (logprobs_N + lse_N).detach())
    logits_NV = head(hidden_NH)
    logprobs_N = score_logits(logits_NV, labels_N).logprobs_N
    chosen_N = _logits_of(logits_NV, labels_N)
    return logprobs_N, logits_NV.detach().max(-1).astype("float32") - chosen_N.detach().astype("float32")


def scale_hidden(hidden_NH: paddle.Tensor, temperature: float) -> paddle.Tensor:
    """Hidden states whose logits are those at `temperature`."""
    return hidden_NH if temperature in (0.0, 1.0) else hidden_NH / temperature


def score_logits(logits_NV: paddle.Tensor, labels_N: paddle.Tensor, entropy_gradient: bool = False) -> TokenScores:
    """log softmax(logits)[label] and the entropy of softmax(logits), both [N] float32.

    Without kernels entropy is the log-normaliser minus sum(p * logits): no logarithm over the vocabulary, and no
    gradient. With `entropy_gradient` it is then -sum(p * log p), with its gradient, at the price of another softmax.
    Paddle's CPU kernel clamps log-probabilities at -64, so below that both are approximate; the gradient is exact.
    """
    if operators.take(logits_NV):
        return token_scores(operators.score_tokens(logits_NV.astype("float32"), labels_N), entropy_gradient)
    labels_N1 = labels_N.unsqueeze(-1)
    nll_N1, probs_NV = F.softmax_with_cross_entropy(logits_NV.astype("float32"), labels_N1, return_softmax=True)
    logprobs_N = -nll_N1.squeeze(-1)
    if entropy_gradient:
        # The softmax returned above passes no gradient on.
        all_logprobs_NV = F.log_softmax(logits_NV.astype("float32"), axis=-1)
        return TokenScores(logprobs_N, -(paddle.exp(all_logprobs_NV) * all_logprobs_NV).sum(-1))
    with paddle.no_grad():
        lse_N = _logits_of(logits_NV, labels_N) - logprobs_N
        return TokenScores(logprobs_N, lse_N - (probs_NV * logits_NV).sum(-1))


def _logits_of(logits_NV: paddle.Tensor, labels_N: paddle.Tensor) -> paddle.Tensor:
    return paddle.take_along_axis(logits_NV, labels_N.unsqueeze(-1), axis=1).squeeze(-1)


def token_scores(scores_3N: Scores, entropy_gradient: bool) -> TokenScores:
    """The record of log-probabilities, entropies, which keep their gradient where it is asked for, and normalisers."""
    logprobs_N, entropy_N, _ = scores_3N
    return TokenScores(logprobs_N, entropy_N if entropy_gradient else entropy_N.detach())


def score_responses(
    model: Any,
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    *,
    pad_id: int,
    batch_size: int,
    temperature: float,
    pack_tokens: int = 0,
) -> list[NDArray[Any]]:
    """Log-probabilities [T] of every response under a policy, without gradient, `batch_size` responses at a time."""

    def logprobs(tokens: PackedTokens) -> paddle.Tensor:
        def of_states(hidden_NH: paddle.Tensor) -> paddle.Tensor:
            return score_hidden(hidden_NH, model.lm_head, tokens.labels_N, temperature=temperature).logprobs_N

        return numbers_of_tokens(model, tokens.model_inputs(), of_states)

    return numbers_of_responses(
        model, logprobs, prompts, responses, pad_id=pad_id, batch_size=batch_size, pack_tokens=pack_tokens
    )


def numbers_of_responses(
    model: Any,
    numbers_of: Callable[[PackedTokens], paddle.Tensor],
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    *,
    pad_id: int,
    batch_size: int,
    pack_tokens: int = 0,
) -> list[NDArray[Any]]:
    """A number for every token of every response [T], without gradient, `batch_size` responses at a time.

    `numbers_of` computes them [N] for packed rows, with `model` in eval mode.
    """
    scored: list[NDArray[Any]] = []
    was_training = model.training
    model.eval()
    with paddle.no_grad():
        for start in range(0, len(prompts), batch_size):
            part = responses[start : start + batch_size]
            tokens = lay_out(prompts[start : start + batch_size], part, pad_id, pack_tokens)
            scored += np.split(numbers_of(tokens).numpy(), np.cumsum([len(response) for response in part])[:-1])
    if was_training:
        model.train()
    return scored


def exceeds_chunk(head: Any, n_tokens: int) -> bool:
    """Return whether the logits of `n_tokens` tokens under this LM head are too many to keep.

    Always true where tensor ranks have a part each, and with products in bfloat16, for which Paddle's operators on the
    CPU have none.
    """
    rounds = current_precision() != "float32" and is_fused(head.weight)
    return head.weight.is_distributed or rounds or n_tokens * head.config.vocab_size * 4 > LOGITS_AT_ONCE


def linear_scores(hidden_NH: paddle.Tensor, head: Any, labels_N: paddle.Tensor) -> Scores:
    """Log-probability of each label, entropy and log-normaliser of the softmax, [N] float32, each with its gradient.

    The backward pass computes the logits once more instead of keeping them; where the loss is at hand, `chunked_loss`
    need not. C++ kernels in float32 on the CPU, Paddle operators elsewhere: products in the weights' type, the rest in
    float32. Raises ValueError for a label outside the vocabulary.
    """
    return LinearScores.apply(hidden_NH, head.weight, labels_N, HeadLayout.of(head), False)


class LinearScores(PyLayer):
    """The scores of `linear_scores`; `with_largest` adds the largest logit of each token, which has no gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: paddle.Tensor,
        weight: paddle.Tensor,
        labels_N: paddle.Tensor,
        layout: HeadLayout,
        with_largest: bool,
    ) -> tuple[paddle.Tensor, ...]:
        check_labels(labels_N, layout.vocab_size(weight))
        layer = output_layer(weight, layout)
        chunks = chunks_of(hidden_NH.shape[0], layer.chunk_tokens)
        scored: list[tuple[paddle.Tensor, ...]] = []
        for chunk in chunks:
            logits_NV, scores = layer.scores(hidden_NH[chunk], labels_N[chunk])
            scored.append((*scores, layout.largest(logits_NV)) if with_largest else scores)
        joined = [paddle.concat(list(column)) for column in zip(*scored, strict=True)]
        note_needs_grad(ctx, hidden_NH, weight, labels_N)
        ctx.layout = layout
        ctx.save_for_backward(hidden_NH, weight, labels_N, *joined[:3])
        return tuple(joined)

    @staticmethod
    def backward(ctx: Any, *gradients: paddle.Tensor) -> tuple[paddle.Tensor | None, ...]:
        hidden_NH, weight, labels_N, *scores_3N = ctx.saved_tensor()
        hidden_needs_grad, weight_needs_grad, _ = ctx.needs_grad
        layer = output_layer(
            weight, ctx.layout, hidden_needs_grad=hidden_needs_grad, weight_needs_grad=weight_needs_grad
        )
        hidden_grads = []
        for chunk in chunks_of(hidden_NH.shape[0], layer.chunk_tokens):
            scores, of_scores = (tuple(score_N[chunk] for score_N in three) for three in (scores_3N, gradients[:3]))
            rows_NH = hidden_NH[chunk]
            hidden_grads.append(layer.backward(layer.logits(rows_NH), rows_NH, labels_N[chunk], scores, of_scores))
        hidden_grad_NH = paddle.concat(hidden_grads) if hidden_needs_grad else None
        return only_needed(ctx, hidden_grad_NH, layer.weight_grad(), None)


def chunks_of(n_tokens: int, chunk_tokens: int) -> list[slice]:
    """`n_tokens` tokens in chunks of `chunk_tokens`; one that is empty where there are none."""
    return [slice(start, min(start + chunk_tokens, n_tokens)) for start in range(0, max(n_tokens, 1), chunk_tokens)]
