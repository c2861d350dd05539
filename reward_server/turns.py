"""Requests taking turns at a judge that serves one at a time: whoever's turn it is brings along those that wait."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TypeVar

from grrm.gqm.groups import Group, Verdict
from grrm.judges.deadline import Abandoned, DeadlinePassed

from .problems import JudgeFailure, RequestProblem

T = TypeVar("T")
Act = Callable[[], None]
POLL_S = 0.5  # how often a request that waits looks whether its client is still there


@dataclass(eq=False, slots=True)
class _Request:
    groups: Sequence[Group]
    until: float
    arrived: float = field(default_factory=time.monotonic)
    answer: Future[list[Verdict]] = field(default_factory=Future)


class Turns:
    """Calls `judge` from one thread at a time, with the groups of all requests that wait.

    A call has at most `max_groups` groups, unless a single request has more, and is to end with the latest deadline of
    its requests. The thread of that request makes it, so that the others can end at theirs. Where a call for several
    requests fails, each of them is judged by itself, so that it can only fail by its own groups.

    After a call `when_idle(act)` says, by calling `act`, when the next one may begin. `waited(seconds)` gets the time
    that each request waited for its call.
    """

    def __init__(
        self,
        judge: Callable[[Sequence[Group], float], list[Verdict]],
        when_idle: Callable[[Act], None],
        max_groups: int,
        waited: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._judge = judge
        self._when_idle = when_idle
        self._max_groups = max_groups
        self._waited = waited
        self._waiting: list[_Request] = []
        self._is_busy = False
        self._changed = threading.Condition()

    def judge(
        self,
        groups: Sequence[Group],
        wait_s: float,
        is_abandoned: Callable[[], bool] = lambda: False,
        until: float = math.inf,
    ) -> list[Verdict]:
        """One verdict per group, order kept.

        Raises RequestProblem 503 when no turn comes within `wait_s`, the JudgeFailure of its own groups, Abandoned
        where `is_abandoned` says before its turn that nobody waits for it, and DeadlinePassed where `until`, on
        time.monotonic()'s clock, passes before its turn or while another request's thread makes the call.
        """
        request = _Request(groups, until)
        batch = self._wait(request, wait_s, is_abandoned)
        if batch:
            try:
                self._serve(batch)
            finally:
                for member in batch:
                    member.answer.cancel()  # no effect but after a defect, which must not leave the others waiting
                with self._changed:
                    self._changed.notify_all()  # the answers are there, though the judge may not be idle yet
                self._when_idle(self._free)
        return request.answer.result()

    @property
    def n_waiting(self) -> int:
        """Requests that wait for their turn."""
        return len(self._waiting)

    def try_now(self, work: Callable[[], T]) -> T | None:
        """Return the result of `work`, or None when the judge is not free at once."""
        with self._changed:
            if self._is_busy:
                return None
            self._is_busy = True
        try:
            return work()
        finally:
            self._when_idle(self._free)

    def _wait(self, request: _Request, wait_s: float, is_abandoned: Callable[[], bool]) -> list[_Request]:
        """The requests to serve when it is this one's turn; none when another turn serves or served it."""
        ends = min(time.monotonic() + wait_s, request.until)
        with self._changed:
            self._waiting.append(request)
            has_turn = False
            while not has_turn and time.monotonic() < ends and not (request in self._waiting and is_abandoned()):
                remaining_s = min(ends - time.monotonic(), POLL_S)
                has_turn = self._changed.wait_for(lambda: request.answer.done() or self._is_next(request), remaining_s)
            if request not in self._waiting:
                if not has_turn and time.monotonic() >= request.until:
                    raise DeadlinePassed
                return []
            if not has_turn:
                self._waiting.remove(request)
                self._changed.notify_all()  # another may be the one to make the call now
                if is_abandoned():
                    raise Abandoned
                if time.monotonic() >= request.until:
                    raise DeadlinePassed
                raise RequestProblem(503, "the judge is busy", retry_after_s=5)
            self._is_busy = True
            return self._take()

    def _is_next(self, request: _Request) -> bool:
        return not self._is_busy and request is max(self._next_batch(), key=lambda member: member.until, default=None)

    def _next_batch(self) -> list[_Request]:
        """The request that has waited longest, and those that fit into a call with it."""
        batch, n_groups = self._waiting[:1], sum(len(request.groups) for request in self._waiting[:1])
        for request in self._waiting[1:]:
            if n_groups + len(request.groups) <= self._max_groups:
                batch.append(request)
                n_groups += len(request.groups)
        return batch

    def _take(self) -> list[_Request]:
        batch = self._next_batch()
        self._waiting = [request for request in self._waiting if request not in batch]
        for request in batch:
            self._waited(time.monotonic() - request.arrived)
        return batch

    def _serve(self, batch: Sequence[_Request]) -> None:
        groups = [group for request in batch for group in request.groups]
        if len({group.group_id for group in groups}) < len(groups):  # clients may use the same ids, judges need not
            groups = [replace(group, group_id=str(number)) for number, group in enumerate(groups)]
        try:
            verdicts = iter(self._judge(groups, max(request.until for request in batch)))
        except JudgeFailure as failure:
            if len(batch) == 1:
                batch[0].answer.set_exception(failure)
                return
            for request in batch:
                self._serve([request])
            return
        for request in batch:
            request.answer.set_result([next(verdicts) for _ in request.groups])

    def _free(self) -> None:
        with self._changed:
            self._is_busy = False
            self._changed.notify_all()
