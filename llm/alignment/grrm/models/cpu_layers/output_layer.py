"""The output layer of a model in C++ kernels: float32 on the CPU, products as `cpu_layers.precision` says."""

from __future__ import annotations

import paddle

from grrm.models.cpu_kernels import available
from grrm.models.cpu_layers.kernel_calls import call_kernel, new_floats
from grrm.models.cpu_layers.precision import current_precision
from grrm_csrc.blas import blas_addresses

Scores = tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]


def is_fused(weight: paddle.Tensor) -> bool:
    """Whether `KernelOutputLayer` runs for an output layer of these weights, here."""
    is_float = weight.dtype == paddle.float32 and weight.place.is_cpu_place()
    return is_float and available() and blas_addresses(current_precision()) is not None


class KernelOutputLayer:
    """See `grrm.models.output_layer.OutputLayer`."""

    rows_at_once = 256  # enough for a matrix product at full speed

    def __init__(self, weight: paddle.Tensor, by_word: bool, for_weight: bool) -> None:
        self.weight, self.by_word = weight, by_word
        self.vocab, self.width = weight.shape if by_word else weight.shape[::-1]
        self._of_weight = new_floats(*weight.shape) if for_weight else None
        self._adds = False
        self._blas = blas_addresses(current_precision())
        # Factors in bfloat16 have to be laid out for every product, so that is done once for all parts.
        self._packs = current_precision() == "bfloat16"
        self._packed: dict[bool, paddle.Tensor] = {}

    def logits(self, hidden_RH: paddle.Tensor) -> paddle.Tensor:
        return self._forward(hidden_RH, None, (None, None, None))

    def scores(self, hidden_RH: paddle.Tensor, labels_R: paddle.Tensor) -> tuple[paddle.Tensor, Scores]:
        scores_3R = (new_floats(len(labels_R)), new_floats(len(labels_R)), new_floats(len(labels_R)))
        return self._forward(hidden_RH, labels_R, scores_3R), scores_3R

    def _forward(self, hidden_RH: paddle.Tensor, labels_R: paddle.Tensor | None, scores_3R: tuple) -> paddle.Tensor:
        logits_RV = new_floats(hidden_RH.shape[0], self.vocab)
        inputs = (self._laid_out(False), hidden_RH, self.weight, labels_R, logits_RV)
        call_kernel("grrm_linear_scores", self._blas, *inputs, *scores_3R, *self._sizes(hidden_RH))
        return logits_RV

    def pull(
        self,
        logits_RV: paddle.Tensor,
        hidden_RH: paddle.Tensor,
        labels_R: paddle.Tensor,
        scores_3R: Scores,
        gradients_3R: Scores,
        for_hidden: bool,
    ) -> paddle.Tensor | None:
        _, entropy_R, lse_R = scores_3R
        of_hidden_RH = new_floats(*hidden_RH.shape) if for_hidden else None
        packed = self._laid_out(True) if for_hidden else None
        inputs = (packed, logits_RV, hidden_RH, self.weight, labels_R, entropy_R, lse_R, *gradients_3R)
        made = (of_hidden_RH, self._of_weight)
        sizes = (*self._sizes(hidden_RH), int(self._adds))
        call_kernel("grrm_linear_scores_backward", self._blas, *inputs, *made, *sizes)
        self._adds = True
        return of_hidden_RH

    def of_weight(self) -> paddle.Tensor | None:
        return self._of_weight

    def _laid_out(self, from_logits: bool) -> paddle.Tensor | None:
        """The weights for products with hidden states, or with gradients of logits; None where they are as they are."""
        if not self._packs:
            return None
        if from_logits not in self._packed:
            model = (self._blas, self.weight, self.width, self.vocab, int(self.by_word), int(from_logits))
            self._packed[from_logits] = room = new_floats(call_kernel("grrm_pack_output_layer", *model, None))
            call_kernel("grrm_pack_output_layer", *model, room)
        return self._packed[from_logits]

    def _sizes(self, hidden_RH: paddle.Tensor) -> tuple[int, int, int, int]:
        return hidden_RH.shape[0], self.width, self.vocab, int(self.by_word)
