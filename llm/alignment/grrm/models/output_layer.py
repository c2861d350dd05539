"""The output layer of a model and the softmax above it, some tokens at a time."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import paddle
import paddle.distributed as dist
from paddle import Tensor

from grrm.models.cpu_layers.output_layer import KernelOutputLayer, is_fused
from grrm.models.cpu_layers.output_layer import Scores as Scores
from grrm.parallel.tensor_ranks import gather_parts, tensor_group


class HeadLayout(NamedTuple):
    """Layout of the weights of an LM head: [V, H] where `transposed`, else [H, V].

    Where `is_divided`, this process has one part of the vocabulary and its tensor ranks have the others.
    """

    transposed: bool
    is_divided: bool = False

    @classmethod
    def of(cls, head: Any) -> HeadLayout:
        """Return the layout of one of PaddleNLP's heads."""
        return cls(bool(head.transpose_y), bool(getattr(head.weight, "is_distributed", False)))

    def vocab_size(self, weight: Tensor) -> int:
        """Tokens of the whole vocabulary."""
        n_local = int(weight.shape[0 if self.transposed else 1])
        return n_local * int(tensor_group().nranks) if self.is_divided else n_local

    def largest(self, logits_NV: Tensor) -> Tensor:
        """The largest logit [N] of each token, over all parts of the vocabulary."""
        largest_N = logits_NV.max(-1)
        if self.is_divided:
            dist.all_reduce(largest_N, op=dist.ReduceOp.MAX, group=tensor_group())
        return largest_N


class OutputLayer(Protocol):
    """Hidden states [N, H] to logits [N, V] and scores [N], and gradients of the scores back to both inputs.

    Scores are the log-probability of each label, the entropy and the log-normaliser of its softmax, float32. A chunk is
    at most `chunk_tokens` tokens: what its logits take in memory is bounded.
    """

    chunk_tokens: int

    def logits(self, hidden_NH: Tensor) -> Tensor:
        """Logits alone."""

    def scores(self, hidden_NH: Tensor, labels_N: Tensor) -> tuple[Tensor, Scores]:
        """Logits and scores."""

    def backward(
        self, logits_NV: Tensor, hidden_NH: Tensor, labels_N: Tensor, scores_3N: Scores, gradients_3N: Scores
    ) -> Tensor | None:
        """The gradient of the hidden states, None where they need none; that of the weights adds up over calls.

        The logits, which may be overwritten, have the gradient
        p (g_lse - g_logprob - g_entropy (logits - lse + H)) + g_logprob onehot(label).
        """

    def weight_grad(self) -> Tensor | None:
        """The gradient of the weights added up so far; None where they need none."""


def output_layer(
    weight: Tensor, layout: HeadLayout, *, hidden_needs_grad: bool = False, weight_needs_grad: bool = False
) -> OutputLayer:
    """Kernels for float32 weights on the CPU, else Paddle operators; with tensor ranks, a part of the vocabulary."""
    form = KernelOutputLayer if is_fused(weight) else OperatorOutputLayer
    layer: OutputLayer = form(weight, layout.transposed, hidden_needs_grad, weight_needs_grad)
    if not layout.is_divided:
        return layer
    size = weight.shape[0 if layout.transposed else 1]
    return VocabularyParallelOutputLayer(layer, tensor_group().rank * size, size)


class OperatorOutputLayer:
    """In Paddle operators, on any device: products in the weights' type, the rest in float32."""

    chunk_tokens = 1024  # each operator starts a kernel on a GPU

    def __init__(self, weight: Tensor, transposed: bool, hidden_needs_grad: bool, weight_needs_grad: bool) -> None:
        self.weight, self.transposed = weight, transposed
        self._hidden_needs_grad, self._weight_needs_grad = hidden_needs_grad, weight_needs_grad
        self._weight_grad: Tensor | None = None

    def logits(self, hidden_NH: Tensor) -> Tensor:
        # Outside of automatic casts, which the backward pass would not repeat.
        with paddle.amp.auto_cast(enable=False):
            hidden_NH = hidden_NH.astype(self.weight.dtype)
            return paddle.matmul(hidden_NH, self.weight, transpose_y=self.transposed).astype("float32")

    def scores(self, hidden_NH: Tensor, labels_N: Tensor) -> tuple[Tensor, Scores]:
        logits_NV = self.logits(hidden_NH)
        lse_N = paddle.logsumexp(logits_NV, axis=-1)
        chosen_N = paddle.take_along_axis(logits_NV, labels_N.unsqueeze(-1), axis=1).squeeze(-1)
        expected_N = (paddle.exp(logits_NV - lse_N.unsqueeze(-1)) * logits_NV).sum(-1)
        return logits_NV, (chosen_N - lse_N, lse_N - expected_N, lse_N)

    def backward(
        self, logits_NV: Tensor, hidden_NH: Tensor, labels_N: Tensor, scores_3N: Scores, gradients_3N: Scores
    ) -> Tensor | None:
        logits_grad_NV = _logits_gradient(logits_NV, labels_N, scores_3N, gradients_3N).astype(self.weight.dtype)
        if self._weight_needs_grad:
            rows_NH = hidden_NH.astype(self.weight.dtype)
            pair = (logits_grad_NV, rows_NH) if self.transposed else (rows_NH, logits_grad_NV)
            gradient = paddle.matmul(*pair, transpose_x=True).astype("float32")
            self._weight_grad = gradient if self._weight_grad is None else self._weight_grad.add_(gradient)
        if not self._hidden_needs_grad:
            return None
        return paddle.matmul(logits_grad_NV, self.weight, transpose_y=not self.transposed).astype(hidden_NH.dtype)

    def weight_grad(self) -> Tensor | None:
        return None if self._weight_grad is None else self._weight_grad.astype(self.weight.dtype)


def _logits_gradient(logits_NV: Tensor, labels_N: Tensor, scores_3N: Scores, gradients_3N: Scores) -> Tensor:
    _, entropy_N, lse_N = scores_3N
    of_logprob_N, of_entropy_N, of_lse_N = gradients_3N
    shifted_NV = logits_NV - lse_N.unsqueeze(-1)
    base_N1 = (of_lse_N - of_logprob_N - of_entropy_N * entropy_N).unsqueeze(-1)
    logits_grad_NV = paddle.exp(shifted_NV) * (base_N1 - of_entropy_N.unsqueeze(-1) * shifted_NV)
    return paddle.put_along_axis(
        logits_grad_NV, labels_N.unsqueeze(-1), of_logprob_N.unsqueeze(-1), axis=1, reduce="add", include_self=True
    )


class VocabularyParallelOutputLayer:
    """An output layer whose vocabulary is divided among the X tensor ranks; logits are those of this rank's part.

    Of each token three numbers go from rank to rank: with the log-normaliser lse_x and the expected logit mu_x of the
    softmax over part x of the vocabulary, those of the whole are

        lse = log sum_x exp(lse_x),   mu = sum_x exp(lse_x - lse) mu_x,   entropy = lse - mu,

    and the label's logit is that of the rank that has it. The gradient needs no more: with the lse and the entropy of
    the whole, `OutputLayer`'s formula holds in each part. Only the gradient of the hidden states, to which every part
    contributes, is summed over the ranks.
    """

    def __init__(self, part: OutputLayer, first: int, size: int) -> None:
        self._part, self._first, self._size = part, first, size
        self.chunk_tokens = part.chunk_tokens

    def logits(self, hidden_NH: Tensor) -> Tensor:
        return self._part.logits(hidden_NH)

    def scores(self, hidden_NH: Tensor, labels_N: Tensor) -> tuple[Tensor, Scores]:
        local_labels_N, is_local_N = self._local_labels(labels_N)
        logits_NV, (logprobs_N, entropy_N, lse_N) = self._part.scores(hidden_NH, local_labels_N)
        local_3N = paddle.stack([lse_N, lse_N - entropy_N, (logprobs_N + lse_N) * is_local_N])
        lse_XN, expected_XN, chosen_XN = paddle.stack(gather_parts(local_3N), axis=1)
        total_N = paddle.logsumexp(lse_XN, axis=0)
        expected_N = (paddle.exp(lse_XN - total_N.unsqueeze(0)) * expected_XN).sum(0)
        return logits_NV, (chosen_XN.sum(0) - total_N, total_N - expected_N, total_N)

    def backward(
        self, logits_NV: Tensor, hidden_NH: Tensor, labels_N: Tensor, scores_3N: Scores, gradients_3N: Scores
    ) -> Tensor | None:
        local_labels_N, is_local_N = self._local_labels(labels_N)
        of_logprob_N, of_entropy_N, of_lse_N = gradients_3N
        # With the label in another part, its log-probability depends on these logits through the normaliser alone.
        local_N = of_logprob_N * is_local_N
        gradients_3N = (local_N, of_entropy_N, of_lse_N - (of_logprob_N - local_N))
        gradient = self._part.backward(logits_NV, hidden_NH, local_labels_N, scores_3N, gradients_3N)
        if gradient is not None:
            dist.all_reduce(gradient, group=tensor_group())
        return gradient

    def weight_grad(self) -> Tensor | None:
        return self._part.weight_grad()

    def _local_labels(self, labels_N: Tensor) -> tuple[Tensor, Tensor]:
        """Each label's place in this part, 0 where it is in another one; and 1 where it is here, else 0."""
        local_labels_N = labels_N - self._first
        is_local_N = (local_labels_N >= 0) & (local_labels_N < self._size)
        return paddle.where(is_local_N, local_labels_N, paddle.zeros_like(local_labels_N)), is_local_N.astype("float32")
