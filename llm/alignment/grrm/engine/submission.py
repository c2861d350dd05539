"""A caller's handle on its requests to the scheduler, and their events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TypeAlias

from grrm.engine.api import Completion, Progress, Request, SamplingParams

Key: TypeAlias = tuple[tuple[int, ...], SamplingParams, int]


@dataclass(frozen=True, slots=True)
class NewTokens:
    """Further tokens of request `index` of a submission."""

    index: int
    progress: Progress


@dataclass(frozen=True, slots=True)
class Ended:
    """The whole completion of request `index` of a submission."""

    index: int
    completion: Completion


Event: TypeAlias = NewTokens | Ended


class Submission:
    """The requests of one caller. One thread reads its events."""

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
        """Return the next event, None after `timeout_s` or if nothing is open. Raises the engine's exception."""
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
        cancelled = sorted(self.open if index is None else self.open & {index})
        self.open.difference_update(cancelled)
        if cancelled:
            self._cancel(self, cancelled)

    def put(self, event: Event | BaseException) -> None:
        """Queue an event for the caller; called by the scheduler."""
        self._events.put(event)


@dataclass(eq=False, slots=True)
class SharedSequence:
    """A request that waits or runs, for all who asked the same: `subscribers` are their submissions and indices."""

    number: int
    request: Request
    key: Key
    owner: Submission  # whose turn in the queue it takes
    subscribers: list[tuple[Submission, int]] = field(default_factory=list)
