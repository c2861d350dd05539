"""Rewards for groups that come one after the other: what has come is judged while more is on its way."""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing.pool import ThreadPool
from queue import Empty, SimpleQueue
from types import TracebackType

from grrm.rl.reward_stage import Rewarder
from grrm.rl.rollout import RolledGroup


class RewardStream:
    """A thread that rewards groups: each time, all that have come since it began with those before.

    It is a daemon: a stuck server cannot keep a failed process alive. Use as a context; leaving it early lets the
    thread end after what it is judging.
    """

    def __init__(self, rewarder: Rewarder) -> None:
        self._rewarder = rewarder
        self._queue: SimpleQueue[Sequence[RolledGroup] | None] = SimpleQueue()
        self._left = False
        self._busy_s = 0.0
        self._busy_since: float | None = None
        self._pool = ThreadPool(1)
        self._result = self._pool.apply_async(self._run)

    def put(self, groups: Sequence[RolledGroup]) -> None:
        """Have these groups rewarded; returns at once."""
        self._queue.put(groups)

    def busy_s(self) -> float:
        """Seconds that the rewarder has been at work so far."""
        since = self._busy_since
        return self._busy_s + (0.0 if since is None else time.perf_counter() - since)

    def wait(self) -> None:
        """Return once every group that was put has its reward; nothing may be put any more.

        Raises what the rewarder raised; groups that came after that have no rewards.
        """
        self.settle()
        self._result.get()

    def settle(self) -> float:
        """Return once the judge has done with all that was put, after so many seconds of work.

        What it raised, `wait` will raise.
        """
        self._queue.put(None)
        self._result.wait()
        return self._busy_s

    def __enter__(self) -> RewardStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left = True
        self._queue.put(None)
        self._pool.terminate()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            groups, is_last = self._next()
            if groups and not self._left:
                started = self._busy_since = time.perf_counter()
                try:
                    self._rewarder.reward(groups)
                finally:
                    self._busy_s, self._busy_since = self._busy_s + time.perf_counter() - started, None

    def _next(self) -> tuple[list[RolledGroup], bool]:
        """All that waits, after something came; and whether nothing more will come."""
        groups: list[RolledGroup] = []
        came = self._queue.get()
        while came is not None:
            groups += came
            try:
                came = self._queue.get_nowait()
            except Empty:
                return groups, False
        return groups, True
