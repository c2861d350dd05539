"""The output layer of a model and the softmax above it, some tokens at a time."""

from __future__ import annotations

from typing import Protocol

import paddle

from grrm.models.cpu_layers.output_layer import KernelOutputLayer, Scores, is_fused


class OutputLayer(Protocol):
    """What turns hidden states [R, H] into logits [R, V] and scores [R], and takes gradients back.

    Scores are the log-probability of each label, the entropy and the log-normaliser of its softmax, float32. At most
    `rows_at_once` tokens should be given at a time, for whose logits there then is memory.
    """

    rows_at_once: int

    def logits(self, hidden_RH: paddle.Tensor) -> paddle.Tensor:
        """Logits alone."""

    def scores(self, hidden_RH: paddle.Tensor, labels_R: paddle.Tensor) -> tuple[paddle.Tensor, Scores]:
        """Logits and scores."""

    def pull(
        self,
        logits_RV: paddle.Tensor,
        hidden_RH: paddle.Tensor,
        labels_R: paddle.Tensor,
        scores_3R: Scores,
        gradients_3R: Scores,
        for_hidden: bool,
    ) -> paddle.Tensor | None:
        """From gradients of the scores that of the hidden states, where wanted; a wanted one of the weights adds up.

        Logits, which may be overwritten, have the gradient
        p (g_lse - g_logprob - g_entropy (logits - lse + H)) + g_logprob onehot(label).
        """

    def of_weight(self) -> paddle.Tensor | None:
        """The gradient of the weights, once something was pulled; None where it is not wanted."""


def output_layer(weight: paddle.Tensor, by_word: bool, for_weight: bool) -> OutputLayer:
    """Kernels for float32 weights on the CPU, else operators; weights are [V, H] where `by_word`, else [H, V].

    `for_weight` says whether the gradient of the weights will be wanted.
    """
    return (KernelOutputLayer if is_fused(weight) else OperatorOutputLayer)(weight, by_word, for_weight)


class OperatorOutputLayer:
    """In Paddle operators, on any device: products in the weights' type, the rest in float32."""

    rows_at_once = 1024  # each operator starts a kernel on a GPU

    def __init__(self, weight: paddle.Tensor, by_word: bool, for_weight: bool) -> None:
        self.weight, self.by_word, self._for_weight = weight, by_word, for_weight
        self._of_weight: paddle.Tensor | None = None

    def logits(self, hidden_RH: paddle.Tensor) -> paddle.Tensor:
        # Outside of automatic casts, which the backward pass would not repeat.
        with paddle.amp.auto_cast(enable=False):
            hidden_RH = hidden_RH.astype(self.weight.dtype)
            return paddle.matmul(hidden_RH, self.weight, transpose_y=self.by_word).astype("float32")

    def scores(self, hidden_RH: paddle.Tensor, labels_R: paddle.Tensor) -> tuple[paddle.Tensor, Scores]:
        logits_RV = self.logits(hidden_RH)
        lse_R = paddle.logsumexp(logits_RV, axis=-1)
        chosen_R = paddle.take_along_axis(logits_RV, labels_R.unsqueeze(-1), axis=1).squeeze(-1)
        expected_R = (paddle.exp(logits_RV - lse_R.unsqueeze(-1)) * logits_RV).sum(-1)
        return logits_RV, (chosen_R - lse_R, lse_R - expected_R, lse_R)

    def pull(
        self,
        logits_RV: paddle.Tensor,
        hidden_RH: paddle.Tensor,
        labels_R: paddle.Tensor,
        scores_3R: Scores,
        gradients_3R: Scores,
        for_hidden: bool,
    ) -> paddle.Tensor | None:
        pull_RV = _logits_gradient(logits_RV, labels_R, scores_3R, gradients_3R).astype(self.weight.dtype)
        if self._for_weight:
            rows_RH = hidden_RH.astype(self.weight.dtype)
            pair = (pull_RV, rows_RH) if self.by_word else (rows_RH, pull_RV)
            found = paddle.matmul(*pair, transpose_x=True).astype("float32")
            self._of_weight = found if self._of_weight is None else self._of_weight.add_(found)
        if not for_hidden:
            return None
        return paddle.matmul(pull_RV, self.weight, transpose_y=not self.by_word).astype(hidden_RH.dtype)

    def of_weight(self) -> paddle.Tensor | None:
        return None if self._of_weight is None else self._of_weight.astype(self.weight.dtype)


def _logits_gradient(
    logits_RV: paddle.Tensor, labels_R: paddle.Tensor, scores_3R: Scores, gradients_3R: Scores
) -> paddle.Tensor:
    _, entropy_R, lse_R = scores_3R
    of_logprob_R, of_entropy_R, of_lse_R = gradients_3R
    shifted_RV = logits_RV - lse_R.unsqueeze(-1)
    base_R1 = (of_lse_R - of_logprob_R - of_entropy_R * entropy_R).unsqueeze(-1)
    pull_RV = paddle.exp(shifted_RV) * (base_R1 - of_entropy_R.unsqueeze(-1) * shifted_RV)
    return paddle.put_along_axis(
        pull_RV, labels_R.unsqueeze(-1), of_logprob_R.unsqueeze(-1), axis=1, reduce="add", include_self=True
    )
