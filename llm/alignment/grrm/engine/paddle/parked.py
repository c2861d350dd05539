"""An engine whose weights are on the device only while it is in use, and offloaded to the host otherwise."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from grrm.engine.paddle.engine import PaddleEngine


class ParkedWeights:
    """The weights of a model that is not trained: on the device from `wake` to `sleep`, else in host memory.

    Initially they are on the host. On a CPU device and host are the same, so nothing is copied or freed.
    """

    def __init__(self, engine: PaddleEngine) -> None:
        self._engine = engine
        model: Any = engine.model
        self._weights: list[tuple[Any, Tensor]] = [(parameter, _on_host(parameter)) for parameter in model.parameters()]
        self._device = self._weights[0][0].place
        self._empty()

    def wake(self) -> None:
        """Copy the weights to the device."""
        for parameter, parked in self._weights:
            current = parked if parked.place == self._device else parked._copy_to(self._device, True)
            parameter.get_tensor()._share_data_with(current.get_tensor())
        self._engine.wake()

    def sleep(self) -> None:
        """Release the device memory."""
        self._engine.sleep()
        self._empty()

    def _empty(self) -> None:
        for parameter, _ in self._weights:
            parameter._clear_data()


def _on_host(parameter: Tensor) -> Tensor:
    if not parameter.place.is_cpu_place():
        return parameter.detach().cpu()
    parked = paddle.empty([0], parameter.dtype)  # `detach` returns the same tensor, which would be emptied too
    parked.get_tensor()._share_data_with(parameter.get_tensor())
    return parked
