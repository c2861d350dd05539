"""The output layer of a model and the softmax above it, some tokens at a time."""

from __future__ import annotations

from typing import Protocol

import paddle

from grrm.models.cpu_layers.output_layer import KernelOutputLayer, is_fused
from grrm.models.cpu_layers.output_layer import Scores as Scores


class OutputLayer(Protocol):
    """Hidden states [N, H] to logits [N, V] and scores [N], and gradients of the scores back to both inputs.

    Scores are the log-probability of each label, the entropy and the log-normaliser of its softmax, float32. A chunk is
    at most `chunk_tokens` tokens: what its logits take in memory is bounded.
    """

    chunk_tokens: int

    def logits(self, hidden_NH: paddle.Tensor) -> paddle.Tensor:
        """Logits alone."""

    def scores(self, hidden_NH: paddle.Tensor, labels_N: paddle.Tensor) -> tuple[paddle.Tensor, Scores]:
        """Logits and scores."""

    def backward(
        self,
        logits_NV: paddle.Tensor,
        hidden_NH: paddle.Tensor,
        labels_N: paddle.Tensor,
        scores_3N: Scores,
        gradients_3N: Scores,
        hidden_needs_grad: bool,
    ) -> paddle.Tensor | None:
        """The gradient of the hidden states, None where they need none; that of the weights adds up over calls.

        The logits, which may be overwritten, have the gradient
        p (g_lse - g_logprob - g_entropy (logits - lse + H)) + g_logprob onehot(label).
        """

    def weight_grad(self) -> paddle.Tensor | None:
        """The gradient of the weights added up so far; None where they need none."""


def output_layer(weight: paddle.Tensor, transposed: bool, weight_needs_grad: bool) -> OutputLayer:
    """Kernels for float32 weights on the CPU, else Paddle operators; weights [V, H] if `transposed`, else [H, V]."""
    return (KernelOutputLayer if is_fused(weight) else OperatorOutputLayer)(weight, transposed, weight_needs_grad)


class OperatorOutputLayer:
    """In Paddle operators, on any device: products in the weights' type, the rest in float32."""

    chunk_tokens = 1024  # each operator starts a kernel on a GPU

    def __init__(self, weight: paddle.Tensor, transposed: bool, weight_needs_grad: bool) -> None:
        self.weight, self.transposed, self._weight_needs_grad = weight, transposed, weight_needs_grad
        self._weight_grad: paddle.Tensor | None = None

    def logits(self, hidden_NH: paddle.Tensor) -> paddle.Tensor:
        # Outside of automatic casts, which the backward pass would not repeat.
        with paddle.amp.auto_cast(enable=False):
            hidden_NH = hidden_NH.astype(self.weight.dtype)
            return paddle.matmul(hidden_NH, self.weight, transpose_y=self.transposed).astype("float32")

    def scores(self, hidden_NH: paddle.Tensor, labels_N: paddle.Tensor) -> tuple[paddle.Tensor, Scores]:
        logits_NV = self.logits(hidden_NH)
        lse_N = paddle.logsumexp(logits_NV, axis=-1)
        chosen_N = paddle.take_along_axis(logits_NV, labels_N.unsqueeze(-1), axis=1).squeeze(-1)
        expected_N = (paddle.exp(logits_NV - lse_N.unsqueeze(-1)) * logits_NV).sum(-1)
        return logits_NV, (chosen_N - lse_N, lse_N - expected_N, lse_N)

    def backward(
        self,
        logits_NV: paddle.Tensor,
        hidden_NH: paddle.Tensor,
        labels_N: paddle.Tensor,
        scores_3N: Scores,
        gradients_3N: Scores,
        hidden_needs_grad: bool,
    ) -> paddle.Tensor | None:
        logits_grad_NV = _logits_gradient(logits_NV, labels_N, scores_3N, gradients_3N).astype(self.weight.dtype)
        if self._weight_needs_grad:
            rows_NH = hidden_NH.astype(self.weight.dtype)
            pair = (logits_grad_NV, rows_NH) if self.transposed else (rows_NH, logits_grad_NV)
            found = paddle.matmul(*pair, transpose_x=True).astype("float32")
            self._weight_grad = found if self._weight_grad is None else self._weight_grad.add_(found)
        if not hidden_needs_grad:
            return None
        return paddle.matmul(logits_grad_NV, self.weight, transpose_y=not self.transposed).astype(hidden_NH.dtype)

    def weight_grad(self) -> paddle.Tensor | None:
        return None if self._weight_grad is None else self._weight_grad.astype(self.weight.dtype)


def _logits_gradient(
    logits_NV: paddle.Tensor, labels_N: paddle.Tensor, scores_3N: Scores, gradients_3N: Scores
) -> paddle.Tensor:
    _, entropy_N, lse_N = scores_3N
    of_logprob_N, of_entropy_N, of_lse_N = gradients_3N
    shifted_NV = logits_NV - lse_N.unsqueeze(-1)
    base_N1 = (of_lse_N - of_logprob_N - of_entropy_N * entropy_N).unsqueeze(-1)
    logits_grad_NV = paddle.exp(shifted_NV) * (base_N1 - of_entropy_N.unsqueeze(-1) * shifted_NV)
    return paddle.put_along_axis(
        logits_grad_NV, labels_N.unsqueeze(-1), of_logprob_N.unsqueeze(-1), axis=1, reduce="add", include_self=True
    )
