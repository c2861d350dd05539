"""The output layer of a model in C++ kernels, float32 on the CPU."""

from __future__ import annotations

import paddle

from grrm.engine.native import available
from grrm.rl.cpu_layers.fused import call_kernel, new_floats
from grrm_csrc.blas import sgemm_address

Scores = tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]


def is_fused(weight: paddle.Tensor) -> bool:
    """Whether `KernelOutputLayer` runs for an output layer of these weights, here."""
    return (
        weight.dtype == paddle.float32 and weight.place.is_cpu_place() and available() and sgemm_address() is not None
    )


class KernelOutputLayer:
    """See `grrm.rl.output_layer.OutputLayer`."""

    rows_at_once = 256  # enough for a matrix product at full speed

    def __init__(self, weight: paddle.Tensor, by_word: bool) -> None:
        self.weight, self.by_word = weight, by_word
        self.vocab, self.width = weight.shape if by_word else weight.shape[::-1]
        self._of_weight: paddle.Tensor | None = None

    def logits(self, hidden_RH: paddle.Tensor) -> paddle.Tensor:
        return self._forward(hidden_RH, None, (None, None, None))

    def scores(self, hidden_RH: paddle.Tensor, labels_R: paddle.Tensor) -> tuple[paddle.Tensor, Scores]:
        scores_3R = (new_floats(len(labels_R)), new_floats(len(labels_R)), new_floats(len(labels_R)))
        return self._forward(hidden_RH, labels_R, scores_3R), scores_3R

    def _forward(self, hidden_RH: paddle.Tensor, labels_R: paddle.Tensor | None, scores_3R: tuple) -> paddle.Tensor:
        logits_RV = new_floats(hidden_RH.shape[0], self.vocab)
        inputs = (hidden_RH, self.weight, labels_R, logits_RV)
        call_kernel("grrm_linear_scores", sgemm_address(), *inputs, *scores_3R, *self._sizes(hidden_RH))
        return logits_RV

    def pull(
        self,
        logits_RV: paddle.Tensor,
        hidden_RH: paddle.Tensor,
        labels_R: paddle.Tensor,
        scores_3R: Scores,
        gradients_3R: Scores,
        for_hidden: bool,
        for_weight: bool,
    ) -> paddle.Tensor | None:
        _, entropy_R, lse_R = scores_3R
        of_hidden_RH = new_floats(*hidden_RH.shape) if for_hidden else None
        adds = self._of_weight is not None
        if for_weight and not adds:
            self._of_weight = new_floats(*self.weight.shape)
        inputs = (logits_RV, hidden_RH, self.weight, labels_R, entropy_R, lse_R, *gradients_3R)
        made = (of_hidden_RH, self._of_weight if for_weight else None)
        sizes = (*self._sizes(hidden_RH), int(adds))
        call_kernel("grrm_linear_scores_backward", sgemm_address(), *inputs, *made, *sizes)
        return of_hidden_RH

    def of_weight(self) -> paddle.Tensor | None:
        return self._of_weight

    def _sizes(self, hidden_RH: paddle.Tensor) -> tuple[int, int, int, int]:
        return hidden_RH.shape[0], self.width, self.vocab, int(self.by_word)
