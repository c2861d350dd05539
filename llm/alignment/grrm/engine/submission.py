"""What a caller of the scheduler holds: the requests it is owed, and what has happened to them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TypeAlias

from grrm.engine.api import Completion, Request, SamplingParams

Key: TypeAlias = tuple[tuple[int, ...], SamplingParams, int]


@dataclass(frozen=True, slots=True)
class Drawn:
    """Further tokens of request `index` of a submission."""

    index: int
    token_ids: list[int]
    logprobs: list[float]


@dataclass(frozen=True, slots=True)
class Ended:
    """The whole completion of request `index` of a submission."""

    index: int
    completion: Completion


Event: TypeAlias = Drawn | Ended


class Submission:
    """What one caller asked for. Its events are read by one thread."""

    def __init__(self, n_requests: int, cancel: Callable[[Submission, Sequence[int]], None], *, streams: bool) -> None:
        self._events: SimpleQueue[Event | BaseException] = SimpleQueue()
        self._cancel = cancel
        self.streams = streams
        self.open = set(range(n_requests))  # indices of requests that have not ended, as the reading thread knows it
        # What follows belongs to the scheduler.
        self.waiting: deque[list[SharedSequence]] = deque()  # of equal prompts, those with much in common side by side
        self.n_running = 0
        self.n_seen = [0] * n_requests

    def next(self, timeout_s: float | None = None) -> Event | None:
        """What happened next, None where nothing does within `timeout_s` or nothing is open. Raises what the engine
        raised."""
        while self.open:
            try:
                event = self._events.get(timeout=timeout_s)
            except Empty:
                return None
            if isinstance(event, BaseException):
                self.open.clear()
                raise event
            if event.index not in self.open:
                continue  # cancelled meanwhile
            if isinstance(event, Ended):
                self.open.discard(event.index)
            return event
        return None

    def cancel(self, index: int | None = None) -> None:
        """Give up one request, or all; there are no more events of it. One that has ended is no mistake."""
        given_up = sorted(self.open if index is None else self.open & {index})
        self.open.difference_update(given_up)
        if given_up:
            self._cancel(self, given_up)

    def put(self, event: Event | BaseException) -> None:
        """Tell the caller; for the scheduler."""
        self._events.put(event)


@dataclass(eq=False, slots=True)
class SharedSequence:
    """A request that waits or runs, for all who asked the same: `wanted_by` are their submissions and indices."""

    number: int
    request: Request
    key: Key
    owner: Submission  # in whose turn it enters
    wanted_by: list[tuple[Submission, int]] = field(default_factory=list)
