"""A judge behind gates: what fails one is not judged, and says why."""

from __future__ import annotations

import pytest
from support.judged_groups import ModelOf, by_length, group_of, judge_over, shown_in

from grrm.gqm.groups import Status
from grrm.judges.gated import GatedJudge
from grrm.judges.gqm import GQMOptions
from grrm.judges.mixture import MixtureJudge, Part
from grrm.rewards.gates import read_gates
from grrm_reward_server.hosting import build_hosted_judge
from grrm_reward_server.settings import Settings

LONG = "x" * 200
GATES = read_gates({"length": {"slack": 10}})


def group_judge(model):
    return judge_over(model, GQMOptions())


def test_what_fails_is_not_shown_and_the_others_are_judged():
    model = ModelOf(by_length)
    (verdict,) = GatedJudge(group_judge(model), GATES).judge([group_of(["a", LONG, "bb", None, LONG])])
    assert shown_in(model.prompts[0]) == ["a", "bb"]
    assert verdict.scores == (1.0, None, 2.0, None, None)
    assert [status.value for status in verdict.statuses] == [
        "scored",
        "wrong_length",
        "scored",
        "unparsable_candidate",
        "wrong_length",
    ]
    assert verdict.ranking == (("c2",), ("c0",))


def test_an_empty_translation_passes_no_gate_that_a_blank_one_fails():
    group = group_of(["x" * 40, "", " ", None], source="s" * 40)
    (verdict,) = GatedJudge(group_judge(ModelOf(by_length)), GATES).judge([group])
    assert [status.value for status in verdict.statuses[1:]] == ["wrong_length", "wrong_length", "unparsable_candidate"]


def test_a_gate_of_one_part_is_the_status_of_the_whole():
    plain = group_judge(ModelOf(lambda place, text: min(len(text), 10)))
    gated = GatedJudge(group_judge(ModelOf(by_length)), GATES)
    (verdict,) = MixtureJudge([Part(plain, "a"), Part(gated, "b")]).judge([group_of(["a", "bb", "x" * 9, LONG])])
    assert verdict.scores == (1.0, 2.0, 9.0, None)
    assert verdict.statuses[3] is Status.WRONG_LENGTH


def test_parts_behind_a_common_gate_tell_its_status():
    mixture = MixtureJudge([Part(group_judge(ModelOf(by_length)), "a")])
    (verdict,) = GatedJudge(mixture, GATES).judge([group_of(["a", "bb", LONG])])
    assert verdict.parts[0].statuses[2] is verdict.statuses[2] is Status.WRONG_LENGTH


@pytest.mark.parametrize("gates", [{"length": None}, {}])
def test_the_name_is_that_of_the_judge(gates):
    judge = build_hosted_judge(Settings(judge="chrf", gates=gates)).judge
    assert judge.name == "chrf"
