"""Token scores of hidden states under a large output layer, without the logits of all tokens at the same time."""

from __future__ import annotations

from typing import Any

import paddle
from paddle.autograd import PyLayer

from grrm.rl.cpu_layers.fused import check_labels
from grrm.rl.cpu_layers.linear_scores import FusedLinearScores, is_fused
from grrm.rl.cpu_layers.wanted import note_inputs, only_wanted

LOGITS_AT_ONCE = 64 * 2**20  # bytes; fewer are kept for the backward pass, which then need not compute them again
ROWS_AT_ONCE = 1024  # of Paddle operators, each of which starts a kernel on a GPU


def scores_by_parts(head: Any, n_rows: int) -> bool:
    """Whether the logits of `n_rows` tokens under this output layer (a PaddleNLP LM head) are too many to keep.

    Not where the output layer is divided among ranks: each then has a part of every token's logits.
    """
    return n_rows * head.config.vocab_size * 4 > LOGITS_AT_ONCE and not head.weight.is_distributed


def linear_scores(
    hidden_NH: paddle.Tensor, head: Any, labels_N: paddle.Tensor
) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    """Log-probability of each label, entropy and log-normaliser of the softmax, [N] float32, each with its gradient.

    The backward pass computes the logits once more instead of keeping them. C++ kernels in float32 on the CPU, Paddle
    operators elsewhere: products in the weights' type, the rest in float32. Raises ValueError for a label outside the
    vocabulary, MemoryError where there is no room for one part's logits.
    """
    form = FusedLinearScores if is_fused(head.weight) else LinearScores
    return form.apply(hidden_NH, head.weight, labels_N, bool(head.transpose_y))


class LinearScores(PyLayer):
    """In Paddle operators, on any device: a few passes over `ROWS_AT_ONCE` rows of logits at a time."""

    @staticmethod
    def forward(
        ctx: Any, hidden_NH: paddle.Tensor, weight: paddle.Tensor, labels_N: paddle.Tensor, by_word: bool
    ) -> Any:
        check_labels(labels_N, weight.shape[0 if by_word else 1])
        parts = [
            _scores(_logits(hidden_NH[part], weight, by_word), labels_N[part]) for part in _parts(hidden_NH.shape[0])
        ]
        scores = [paddle.concat(list(of_parts)) for of_parts in zip(*parts, strict=True)]
        note_inputs(ctx, hidden_NH, weight, labels_N)
        ctx.by_word = by_word
        ctx.save_for_backward(hidden_NH, weight, labels_N, *scores[1:])
        return tuple(scores)

    @staticmethod
    def backward(ctx: Any, *gradients_N: paddle.Tensor) -> Any:
        hidden_NH, weight, labels_N, entropy_N, lse_N = ctx.saved_tensor()
        for_hidden, for_weight, _ = ctx.wanted
        of_hidden: list[paddle.Tensor] = []
        of_weight = paddle.zeros(weight.shape, "float32") if for_weight else None
        for part in _parts(hidden_NH.shape[0]):
            logits_RV = _logits(hidden_NH[part], weight, ctx.by_word)
            given = (one_N[part] for one_N in (labels_N, entropy_N, lse_N, *gradients_N))
            pull_RV = _logits_gradient(logits_RV, *given).astype(weight.dtype)
            if for_hidden:
                of_hidden.append(paddle.matmul(pull_RV, weight, transpose_y=not ctx.by_word).astype(hidden_NH.dtype))
            if for_weight:
                rows_RH = hidden_NH[part].astype(weight.dtype)
                pair = (pull_RV, rows_RH) if ctx.by_word else (rows_RH, pull_RV)
                of_weight += paddle.matmul(*pair, transpose_x=True).astype("float32")
        found_NH = paddle.concat(of_hidden) if for_hidden else None
        return only_wanted(ctx, found_NH, of_weight.astype(weight.dtype) if for_weight else None, None)


def _parts(n_rows: int) -> list[slice]:
    return [slice(start, min(start + ROWS_AT_ONCE, n_rows)) for start in range(0, max(n_rows, 1), ROWS_AT_ONCE)]


def _logits(hidden_RH: paddle.Tensor, weight: paddle.Tensor, by_word: bool) -> paddle.Tensor:
    """[R, V] float32. Outside of automatic casts, which the backward pass would not repeat."""
    with paddle.amp.auto_cast(enable=False):
        return paddle.matmul(hidden_RH.astype(weight.dtype), weight, transpose_y=by_word).astype("float32")


def _scores(logits_RV: paddle.Tensor, labels_R: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    lse_R = paddle.logsumexp(logits_RV, axis=-1)
    chosen_R = paddle.take_along_axis(logits_RV, labels_R.unsqueeze(-1), axis=1).squeeze(-1)
    expected_R = (paddle.exp(logits_RV - lse_R.unsqueeze(-1)) * logits_RV).sum(-1)
    return chosen_R - lse_R, lse_R - expected_R, lse_R


def _logits_gradient(
    logits_RV: paddle.Tensor,
    labels_R: paddle.Tensor,
    entropy_R: paddle.Tensor,
    lse_R: paddle.Tensor,
    of_logprob_R: paddle.Tensor,
    of_entropy_R: paddle.Tensor,
    of_lse_R: paddle.Tensor,
) -> paddle.Tensor:
    """p (g_lse - g_logprob - g_entropy (logits - lse + H)) + g_logprob onehot(label), as in csrc's kernel."""
    shifted_RV = logits_RV - lse_R.unsqueeze(-1)
    base_R1 = (of_lse_R - of_logprob_R - of_entropy_R * entropy_R).unsqueeze(-1)
    pull_RV = paddle.exp(shifted_RV) * (base_R1 - of_entropy_R.unsqueeze(-1) * shifted_RV)
    return paddle.put_along_axis(
        pull_RV, labels_R.unsqueeze(-1), of_logprob_R.unsqueeze(-1), axis=1, reduce="add", include_self=True
    )
