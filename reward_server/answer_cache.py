"""Answers by request id, so that a client that asks again gets what it would have got the first time."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future
from dataclasses import dataclass, field

from .problems import RequestProblem, Unfinished
from .turns import POLL_S


@dataclass(slots=True)
class _Entry:
    digest: bytes
    answer: Future[bytes] = field(default_factory=Future)
    n_bytes: int = 0
    clients_gone: list[Callable[[], bool]] = field(default_factory=list)  # one for each that waits

    def is_abandoned(self) -> bool:
        return all(is_gone() for is_gone in list(self.clients_gone))


class AnswerCache:
    """A bounded, thread-safe cache in which a repeat of a request under way waits for it. Failures are not kept."""

    def __init__(self, *, max_entries: int, max_bytes: int, wait_s: float) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._wait_s = wait_s
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._n_bytes = 0
        self._lock = threading.Lock()

    def get_or_compute(
        self,
        request_id: str,
        digest: bytes,
        compute: Callable[[Callable[[], bool]], bytes],
        is_gone: Callable[[], bool] = lambda: False,
        until: float = math.inf,
    ) -> tuple[bytes, bool]:
        """The answer and whether it is a replay; `digest` identifies the request's content.

        `is_gone` says whether the client is; `compute` is given what says so of all who wait for its answer. A repeat
        waits until `until` at most, on time.monotonic()'s clock, and computes anew if the first's deadline came before.

        Raises RequestProblem 409 when the id belongs to another content, 503 when the first request takes too long or
        the repeat's client is gone, Unfinished at the repeat's deadline, and whatever `compute` raises, to the repeats
        waiting for it too.
        """
        with self._lock:
            entry = self._entries.get(request_id)
            is_first = entry is None
            if entry is None:
                entry = self._entries[request_id] = _Entry(digest)
            if entry.digest == digest and not entry.answer.done():
                entry.clients_gone.append(is_gone)
        if entry.digest != digest:
            raise RequestProblem(409, "this request_id was used for another request", field="request_id")
        if is_first:
            return self._compute(request_id, entry, compute), False
        try:
            return self._wait(request_id, entry, is_gone, until), True
        except Unfinished:
            if time.monotonic() >= until:
                raise
        return self.get_or_compute(request_id, digest, compute, is_gone, until)

    def _wait(self, request_id: str, entry: _Entry, is_gone: Callable[[], bool], until: float) -> bytes:
        ends = min(time.monotonic() + self._wait_s, until)
        while not entry.answer.done() and not is_gone() and (remaining_s := ends - time.monotonic()) > 0:
            futures.wait([entry.answer], min(remaining_s, POLL_S))
        if entry.answer.done():
            return entry.answer.result()
        with self._lock:
            if is_gone in entry.clients_gone:
                entry.clients_gone.remove(is_gone)
        if time.monotonic() >= until:
            raise Unfinished(request_id, "the request's deadline came while the first of this id was being judged")
        if is_gone():
            raise RequestProblem(503, "the client has gone", retry_after_s=1)
        raise RequestProblem(503, "the first request of this id is still being judged", retry_after_s=5)

    def _compute(self, request_id: str, entry: _Entry, compute: Callable[[Callable[[], bool]], bytes]) -> bytes:
        try:
            answer = compute(entry.is_abandoned)
        except BaseException as error:
            with self._lock:
                del self._entries[request_id]
            entry.answer.set_exception(error)
            raise
        with self._lock:
            entry.n_bytes = len(answer)
            self._n_bytes += len(answer)
            entry.answer.set_result(answer)
            entry.clients_gone.clear()
            self._evict()
        return answer

    def _evict(self) -> None:
        """Drops the oldest finished answers until the bounds hold; requests under way are never dropped."""
        for request_id, entry in list(self._entries.items()):
            if self._fits():
                break
            if entry.answer.done():
                self._n_bytes -= self._entries.pop(request_id).n_bytes

    def _fits(self) -> bool:
        return len(self._entries) <= self._max_entries and self._n_bytes <= self._max_bytes
