"""A judge over an engine of this process: awake while it judges, asleep afterwards, whatever comes of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from grrm.errors import UserError
from grrm.inference.judge_sources import PhasedJudge


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
