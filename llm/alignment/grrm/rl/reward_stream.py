"""Streaming rewards: complete groups are judged while others are still being sampled."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import wait
from queue import Empty, SimpleQueue
from types import TracebackType

from grrm.judges.deadline import in_thread
from grrm.rewards.shaping import ShapedRewards
from grrm.rl.records import Judged, Rolled
from grrm.rl.reward_stage import Rewarder

Unscored = tuple[Judged, ShapedRewards | None]  # a group of a failed batch, and its rewards if it got them


class RewardStream:
    """A thread that rewards groups in batches: each batch has all groups that arrived during the previous one.

    It is a daemon: a stuck server cannot keep a failed process alive. Use it as a context manager; on early exit the
    thread ends after its current batch. `judged` and `shaped` are the results so far, by position of the group.
    """

    def __init__(self, rewarder: Rewarder) -> None:
        self._rewarder = rewarder
        self._queue: SimpleQueue[Sequence[Rolled] | None] = SimpleQueue()
        self._is_closed = False
        self._busy_s = 0.0
        self._busy_since: float | None = None
        self.judged: dict[int, Judged] = {}
        self.shaped: dict[int, ShapedRewards] = {}
        self._end = in_thread("rewards", self._run)

    def put(self, groups: Sequence[Rolled]) -> None:
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
        self._end.result()

    def settle(self) -> float:
        """Wait until the judge has finished all queued groups; returns its seconds of work.

        `wait` raises what it raised.
        """
        self._queue.put(None)
        wait([self._end])
        return self._busy_s

    def latest(self, group: Rolled) -> Unscored:
        """The last state of a group whose batch has failed."""
        return self.judged.get(group.position, Judged(group)), self.shaped.get(group.position)

    def __enter__(self) -> RewardStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closed = True
        self._queue.put(None)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            groups, is_last = self._next()
            if groups and not self._is_closed:
                started = self._busy_since = time.perf_counter()
                try:
                    self._reward(groups)
                finally:
                    self._busy_s, self._busy_since = self._busy_s + time.perf_counter() - started, None

    def _reward(self, groups: Sequence[Rolled]) -> None:
        judged = {group.rolled.position: group for group in self._rewarder.judge_groups(groups)}
        self.judged |= judged  # all of them first: shaping may stop the run, and the dump has all verdicts
        self.shaped |= {position: self._rewarder.shape(group) for position, group in judged.items()}

    def _next(self) -> tuple[list[Rolled], bool]:
        """All queued groups, once there is one; and whether the queue is closed."""
        groups: list[Rolled] = []
        came = self._queue.get()
        while came is not None:
            groups += came
            try:
                came = self._queue.get_nowait()
            except Empty:
                return groups, False
        return groups, True
