"""The output layer of a model in C++ kernels: float32 on the CPU, products as `cpu_layers.precision` says."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from grrm.models.cpu_kernels import available
from grrm.models.cpu_layers.operators import call_kernel, new_floats
from grrm.models.cpu_layers.precision import current_precision
from grrm_csrc.blas import blas_addresses

Scores = tuple[Tensor, Tensor, Tensor]


def is_fused(weight: Tensor) -> bool:
    """Return whether `KernelOutputLayer` runs for an output layer of these weights on this machine."""
    is_float = weight.dtype == paddle.float32 and weight.place.is_cpu_place()
    return is_float and available() and blas_addresses(current_precision()) is not None


class KernelOutputLayer:
    """See `grrm.models.output_layer.OutputLayer`."""

    chunk_tokens = 256  # enough for a matrix product at full speed

    def __init__(self, weight: Tensor, transposed: bool, hidden_needs_grad: bool, weight_needs_grad: bool) -> None:
        self.weight, self.transposed, self._hidden_needs_grad = weight, transposed, hidden_needs_grad
        self.vocab, self.width = weight.shape if transposed else weight.shape[::-1]
        self._weight_grad = new_floats(*weight.shape) if weight_needs_grad else None
        self._adds = False
        self._blas = blas_addresses(current_precision())
        # Factors in bfloat16 have to be laid out for every product, so that is done once for all parts.
        self._packs = current_precision() == "bfloat16"
        self._packed: dict[bool, Tensor] = {}

    def logits(self, hidden_NH: Tensor) -> Tensor:
        return self._forward(hidden_NH, None, (None, None, None))

    def scores(self, hidden_NH: Tensor, labels_N: Tensor) -> tuple[Tensor, Scores]:
        scores_3N = (new_floats(len(labels_N)), new_floats(len(labels_N)), new_floats(len(labels_N)))
        return self._forward(hidden_NH, labels_N, scores_3N), scores_3N

    def _forward(self, hidden_NH: Tensor, labels_N: Tensor | None, scores_3N: tuple[Any, Any, Any]) -> Tensor:
        logits_NV = new_floats(hidden_NH.shape[0], self.vocab)
        inputs = (self._packed_weights(False), hidden_NH, self.weight, labels_N, logits_NV)
        call_kernel("grrm_linear_scores", self._blas, *inputs, *scores_3N, *self._sizes(hidden_NH))
        return logits_NV

    def backward(
        self, logits_NV: Tensor, hidden_NH: Tensor, labels_N: Tensor, scores_3N: Scores, gradients_3N: Scores
    ) -> Tensor | None:
        _, entropy_N, lse_N = scores_3N
        hidden_grad_NH = new_floats(*hidden_NH.shape) if self._hidden_needs_grad else None
        packed = self._packed_weights(True) if self._hidden_needs_grad else None
        inputs = (packed, logits_NV, hidden_NH, self.weight, labels_N, entropy_N, lse_N, *gradients_3N)
        outputs = (hidden_grad_NH, self._weight_grad)
        sizes = (*self._sizes(hidden_NH), int(self._adds))
        call_kernel("grrm_linear_scores_backward", self._blas, *inputs, *outputs, *sizes)
        self._adds = True
        return hidden_grad_NH

    def weight_grad(self) -> Tensor | None:
        return self._weight_grad

    def _packed_weights(self, from_logits: bool) -> Tensor | None:
        """The weights for products with hidden states, or with gradients of logits; None where they are as they are."""
        if not self._packs:
            return None
        if from_logits not in self._packed:
            model = (self._blas, self.weight, self.width, self.vocab, int(self.transposed), int(from_logits))
            self._packed[from_logits] = packed = new_floats(call_kernel("grrm_pack_output_layer", *model, None))
            call_kernel("grrm_pack_output_layer", *model, packed)
        return self._packed[from_logits]

    def _sizes(self, hidden_NH: Tensor) -> tuple[int, int, int, int]:
        return hidden_NH.shape[0], self.width, self.vocab, int(self.transposed)
