"""Judges of a mixture: engines that are awake only while they judge, and deadlines that keep what was answered."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from support.completions_server import CompletionsServer
from support.judged_groups import group_of
from support.local_server import LocalServer
from support.reward_protocol import ok

from grrm.errors import UserError
from grrm.gqm.groups import Status
from grrm.inference.judge_sources import PhasedJudge, open_mixture
from grrm.judges.sources import read_sources


class Engine:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def wake(self) -> None:
        self.calls.append("wake")

    def sleep(self) -> None:
        self.calls.append("sleep")


def test_the_engine_is_awake_only_while_groups_are_judged():
    engine = Engine()
    inner = SimpleNamespace(name="gqm", judge=lambda groups: engine.calls.append("judge") or list(groups))
    assert PhasedJudge(inner, engine, "runs/grrm").judge([1, 2]) == [1, 2]
    assert engine.calls == ["wake", "judge", "sleep"]


def test_logits_that_are_no_numbers_end_in_a_sentence_and_the_engine_sleeps():
    def fails(groups):
        raise FloatingPointError("logits are not finite")

    engine = Engine()
    with pytest.raises(UserError, match=r"judge gqm over 'runs/grrm' failed \(logits are not finite\)"):
        PhasedJudge(SimpleNamespace(name="gqm", judge=fails), engine, "runs/grrm").judge([])
    assert engine.calls == ["wake", "sleep"]


def test_replies_that_are_drawn_again_do_not_outlast_the_deadline_and_lose_the_others():
    def reply(request, number):
        if "good" in request["prompt"]:
            return "8"
        time.sleep(3.0 * (request["temperature"] > 0))  # the second time of drawing it again ends too late
        return "no score"

    with CompletionsServer(reply) as server:
        mixture = open_mixture(
            read_sources([{"judge": "sqm", "urls": [server.url], "model": "judge", "deadline_s": 4.0}])
        )
        (verdict,) = mixture.judge([group_of(["good", "bad"])])
    assert verdict.statuses == (Status.SCORED, Status.JUDGE_TIMEOUT)
    assert verdict.scores == (8.0, None)


def judged_after_a_slow_call(source):
    """The verdict on a group whose scores are 8, after a call that the server holds and whose caller has gone."""
    until = time.monotonic() + 2.0
    sources = read_sources([source, {"judge": "consensus"}])
    mixture = open_mixture(sources, remaining_s=lambda: max(until - time.monotonic(), 0.0))
    (late,) = mixture.judge([group_of(["slow", "7"])])
    assert set(late.statuses) == {Status.JUDGE_TIMEOUT}, "without the judge the group would have another score"
    until = time.monotonic() + 20.0
    return mixture.judge([group_of(["8", "8 too"])])[0].parts[0]


def test_replies_end_with_the_caller_of_the_mixture_where_that_is_sooner():
    released = threading.Event()

    def reply(request, number):
        if "slow" in request["prompt"]:
            released.wait(60)
        return "8"

    with CompletionsServer(reply) as server, ExitStack() as at_the_end:
        at_the_end.callback(released.set)
        verdict = judged_after_a_slow_call({"judge": "sqm", "urls": [server.url], "model": "judge"})
    assert verdict.scores == (8.0, 8.0), "the call before has ended, and did not keep the judge"


def test_a_reward_server_is_not_waited_for_longer_than_the_caller_of_the_mixture_waits():
    released = threading.Event()

    def answer(handler, body):
        if b"slow" in body:
            released.wait(60)
        ok(handler, body)

    with LocalServer(answer) as server, ExitStack() as at_the_end:
        at_the_end.callback(released.set)
        verdict = judged_after_a_slow_call({"judge": "server", "urls": [server.url]})
    assert verdict.scores == (8.0, 0.0)
