"""The constraints of a batch: tokens that a sequence may not have next get the logit -inf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray

from grrm.engine.api import Request


class Constraints:
    """Matchers of the requests that have a constraint, by number; they stay while a request is preempted.

    `failed` are those whose matcher cannot go on, because a step exceeds the limits of the library: they get a stop
    token next.
    """

    def __init__(self) -> None:
        self._matchers: dict[int, Any] = {}
        self._stops: dict[int, list[int]] = {}
        self.failed: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._matchers)

    def add(self, requests: Mapping[int, Request]) -> None:
        """Start the matchers of new requests."""
        for number, request in requests.items():
            if request.params.constraint is not None:
                self._matchers[number] = request.params.constraint.matcher()
                self._stops[number] = list(request.params.stop_token_ids)

    def drop(self, number: int) -> bool:
        """Forget a request; returns if it failed."""
        self._matchers.pop(number, None)
        self._stops.pop(number, None)
        is_failed = number in self.failed
        self.failed.discard(number)
        return is_failed

    def mask(self, numbers_S: NDArray[np.int64], logits_SV: Any) -> Any:
        """The logits with -inf for what is not allowed; rows without a constraint keep their bits.

        An array is changed in place, a tensor on a device is not.
        """
        rows = np.array([row for row, number in enumerate(numbers_S.tolist()) if number in self._matchers], np.int64)
        if not len(rows):
            return logits_SV
        allowed_RV = np.stack([self._allowed(number, logits_SV.shape[1]) for number in numbers_S[rows].tolist()])
        if isinstance(logits_SV, np.ndarray):
            logits_SV[rows] = np.where(allowed_RV, logits_SV[rows], np.float32(-np.inf))
            return logits_SV
        index = paddle.to_tensor(rows, place=logits_SV.place)
        logits_RV = paddle.gather(logits_SV, index)
        allowed = paddle.to_tensor(allowed_RV, place=logits_SV.place)
        masked_RV = paddle.where(allowed, logits_RV, paddle.full_like(logits_RV, -np.inf))
        return paddle.scatter(logits_SV, index, masked_RV)

    def _allowed(self, number: int, width: int) -> NDArray[np.bool_]:
        matcher = self._matchers[number]
        bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        allowed_V = np.zeros(width, np.bool_)
        unpacked = np.unpackbits(bits, bitorder="little")[:width]
        allowed_V[: len(unpacked)] = unpacked
        if matcher.is_error() or not allowed_V.any():
            self.failed.add(number)
            allowed_V[:] = False
            allowed_V[self._stops[number]] = True
        return allowed_V

    def advance(self, numbers_S: NDArray[np.int64], tokens_S: NDArray[np.int64]) -> None:
        """Advance the matchers by the sampled tokens."""
        for number, token in zip(numbers_S.tolist(), tokens_S.tolist(), strict=True):
            if number in self._matchers and number not in self.failed:
                self._matchers[number].consume_token(token)
