"""Streaming rewards: complete groups are judged while others are still being sampled."""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing.pool import ThreadPool
from queue import Empty, SimpleQueue
from types import TracebackType

from grrm.rl.reward_stage import Rewarder
from grrm.rl.rollout import RolledGroup


class RewardStream:
    """A thread that rewards groups in batches: each batch has all groups that arrived during the previous one.

    It is a daemon: a stuck server cannot keep a failed process alive. Use it as a context manager; on early exit the
    thread ends after its current batch.
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
        """Queue these groups; returns immediately."""
        self._queue.put(groups)

    def busy_s(self) -> float:
        """Seconds that the rewarder has been busy so far."""
        since = self._busy_since
        return self._busy_s + (0.0 if since is None else time.perf_counter() - since)

    def wait(self) -> None:
        """Wait until every queued group has its reward; no group may be added afterwards.

        Raises what the rewarder raised; groups that were queued after that have no rewards.
        """
        self.settle()
        self._result.get()

    def settle(self) -> float:
        """Wait until the judge has finished all queued groups; returns its seconds of work.

        `wait` raises what it raised.
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
                    took_s = time.perf_counter() - started
                    self._busy_s, self._busy_since = self._busy_s + took_s, None
                for rolled in groups:
                    rolled.judge_s = took_s / len(groups)

    def _next(self) -> tuple[list[RolledGroup], bool]:
        """All queued groups, once there is one; and whether the queue is closed."""
        groups: list[RolledGroup] = []
        came = self._queue.get()
        while came is not None:
            groups += came
            try:
                came = self._queue.get_nowait()
            except Empty:
                return groups, False
        return groups, True
