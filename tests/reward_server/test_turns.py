"""Turns at a judge that serves one at a time: shared, isolated from each other's failures, never waited for in vain."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest
from support.judged_groups import group_of
from support.stopped_clock import eventually

from grrm.gqm.groups import Verdict
from grrm.judges.deadline import DeadlinePassed
from grrm_reward_server.problems import JudgeFailure, RequestProblem
from grrm_reward_server.turns import Turns


class Judge:
    """Answers with the groups' sources; its first call waits to be released; a group called `bad` fails."""

    def __init__(self, bad=None):
        self.calls, self.ids, self.untils, self.bad = [], [], [], bad
        self.started, self.released = threading.Event(), threading.Event()

    def __call__(self, groups, until):
        self.untils.append(until)
        self.calls.append([group.task.source for group in groups])
        self.ids.append([group.group_id for group in groups])
        if len(self.calls) == 1:
            self.started.set()
            assert self.released.wait(120)
        if self.bad in self.calls[-1]:
            raise JudgeFailure("ref")
        return [Verdict((), (), analysis=group.task.source) for group in groups]


def at_once(act):
    act()


def groups(*ids):
    return [group_of(["a"], name, source=name) for name in ids]


def ids_of(verdicts):
    return [verdict.analysis for verdict in verdicts]


def serve_together(judge, *requests, max_groups=100):
    """Outcomes of requests that all wait while a first one, `x`, is judged."""
    turns = Turns(judge, at_once, max_groups)
    with ThreadPoolExecutor(len(requests) + 1) as threads:
        first = threads.submit(turns.judge, groups("x"), 120.0)
        assert judge.started.wait(120)
        waiting = []
        for request in requests:
            waiting.append(threads.submit(turns.judge, groups(*request), 120.0))
            while turns.n_waiting < len(waiting):
                threading.Event().wait(0.001)
        judge.released.set()
        assert ids_of(first.result(120)) == ["x"]
        return [future.exception(120) or ids_of(future.result(120)) for future in waiting]


def test_requests_that_wait_are_judged_in_one_call_and_each_gets_its_own():
    judge = Judge()
    assert serve_together(judge, ["a", "b"], ["c"], ["a"]) == [["a", "b"], ["c"], ["a"]]
    assert len(judge.calls) == 2
    assert sorted(judge.calls[1]) == ["a", "a", "b", "c"]
    assert len(set(judge.ids[1])) == 4  # a reward server behind the judge refuses repeated ids


def test_a_request_ends_at_its_deadline_though_the_call_that_it_shares_runs_on():
    class Slow(Judge):
        ended = threading.Event()

        def __call__(self, groups, until):
            verdicts = super().__call__(groups, until)
            assert len(self.calls) == 1 or self.ended.wait(120)
            return verdicts

    judge = Slow()
    turns = Turns(judge, at_once, 100)
    with ThreadPoolExecutor(3) as threads:
        threads.submit(turns.judge, groups("x"), 120.0)
        assert judge.started.wait(120)
        hurried = threads.submit(turns.judge, groups("a"), 120.0, until=time.monotonic() + 1.0)
        eventually(lambda: turns.n_waiting == 1)
        patient = threads.submit(turns.judge, groups("b"), 120.0)
        eventually(lambda: turns.n_waiting == 2)
        judge.released.set()
        try:
            assert isinstance(hurried.exception(30), DeadlinePassed)
            assert not patient.done()
        finally:
            judge.ended.set()
        assert ids_of(patient.result(120)) == ["b"]
    assert judge.calls[1] == ["a", "b"]


def test_a_call_has_no_more_groups_than_the_limit():
    judge = Judge()
    assert serve_together(judge, ["a", "b"], ["c", "d", "e"], ["f"], max_groups=3) == [
        ["a", "b"],
        ["c", "d", "e"],
        ["f"],
    ]
    assert max(map(len, judge.calls)) <= 3
    assert sorted(name for call in judge.calls for name in call) == list("abcdefx")


def test_a_request_fails_by_its_own_groups_only():
    judge = Judge(bad="b")
    fine, failed, other = serve_together(judge, ["a"], ["b"], ["c"])
    assert (fine, other) == (["a"], ["c"])
    assert isinstance(failed, JudgeFailure)


def test_a_defect_in_a_shared_call_leaves_nobody_waiting():
    class Defective(Judge):
        def __call__(self, groups, until):
            verdicts = super().__call__(groups, until)
            if len(self.calls) > 1:
                raise ZeroDivisionError
            return verdicts

    outcomes = serve_together(Defective(), ["a"], ["b"])
    assert {type(outcome) for outcome in outcomes} == {ZeroDivisionError, CancelledError}


@pytest.mark.parametrize(
    ("wait_s", "left_s", "error"), [(0.02, math.inf, RequestProblem), (120.0, 0.02, DeadlinePassed)]
)
def test_a_turn_that_does_not_come_in_time_is_told_and_forgotten(wait_s, left_s, error):
    judge = Judge()
    turns = Turns(judge, at_once, 100)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(turns.judge, groups("x"), 120.0)
        assert judge.started.wait(120)
        with pytest.raises(error) as caught:
            turns.judge(groups("late"), wait_s, until=time.monotonic() + left_s)
        judge.released.set()
        first.result(120)
    if error is RequestProblem:
        assert (caught.value.status, caught.value.retry_after_s) == (503, 5)
    assert ids_of(turns.judge(groups("next"), 120.0)) == ["next"]
    assert judge.calls == [["x"], ["next"]]


def test_a_call_is_to_end_with_the_latest_deadline_of_its_requests():
    judge = Judge()
    judge.released.set()
    turns = Turns(judge, at_once, 100)
    turns.judge(groups("x"), 120.0, until=12e9)
    turns.judge(groups("y"), 120.0)
    assert judge.untils == [12e9, math.inf]


def test_the_next_turn_begins_when_the_judge_is_idle_but_the_answers_are_given_before():
    acts = []
    judge = Judge()
    judge.released.set()
    turns = Turns(judge, acts.append, 100)
    assert ids_of(turns.judge(groups("x"), 120.0)) == ["x"]
    assert turns.try_now(lambda: "work") is None
    with pytest.raises(RequestProblem):
        turns.judge(groups("early"), 0.02)
    acts.pop()()
    assert turns.try_now(lambda: "work") == "work"
    acts.pop()()
    assert ids_of(turns.judge(groups("y"), 120.0)) == ["y"]


def test_work_that_fails_gives_its_turn_back():
    turns = Turns(Judge(), at_once, 100)
    with pytest.raises(ZeroDivisionError):
        turns.try_now(lambda: 1 / 0)
    assert turns.try_now(lambda: "free") == "free"
