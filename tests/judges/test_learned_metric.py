"""A learned metric as a judge: one process for many calls, and what happens when it hangs, dies or refuses."""

from __future__ import annotations

import json
import os
import signal

import pytest
from support.judged_groups import group_of
from support.metric_environments import TENTHS, TORCH, install, make_environment
from support.reward_app import group, make_client, score_body

from grrm.errors import UserError
from grrm.gqm.groups import Group, Status, TranslationTask
from grrm.inference.judge_sources import open_mixture
from grrm.judges.metric_worker import METRIC_KINDS
from grrm.judges.registry import open_judge, spec_of
from grrm.judges.sources import read_sources
from grrm.judges.spec import Process
from grrm.rewards import worker
from grrm_reward_server.hosting import build_hosted_judge
from grrm_reward_server.settings import Settings


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    folder = make_environment(tmp_path_factory.mktemp("metric"))
    install(folder, comet=TENTHS, torch=TORCH)
    return folder


def opened_metric(name, environment, model=None, *, seconds, **options):
    process = Process(name, model=model, seconds=seconds)
    return open_judge(name, {"environment": str(environment), **options}, process)


@pytest.fixture
def judge(environment):
    """The judge comet or its like, with a deadline."""
    opened = []

    def open_metric(name="comet", deadline_s=120.0, **options):
        opened.append(opened_metric(name, environment, seconds=deadline_s, **options))
        return opened[-1]

    yield open_metric
    for one in opened:
        one.worker.close()


def with_reference(texts, reference="ref", group_id="g"):
    plain = group_of(texts, group_id)
    return Group(group_id, TranslationTask("src", "de", "en", reference), plain.candidates)


def pid_of(judge):
    return judge.worker._process._popen.pid


def test_translations_are_scored_once_each_by_one_process(judge):
    comet = judge()
    pid = pid_of(comet)
    groups = [with_reference(["one", "three", None, "one"]), with_reference(["x" * 30], group_id="h")]
    first, second = comet.judge(groups)
    assert first.scores == (3.0, 5.0, None, 3.0)
    assert first.statuses[2:] == (Status.UNPARSABLE_CANDIDATE, Status.DUPLICATE)
    assert first.ranking == (("c1",), ("c0", "c3"))
    assert second.scores == (10.0,)  # clipped
    assert comet.judge([with_reference(["two"])])[0].scores == (3.0,)
    assert pid_of(comet) == pid


def test_references_are_asked_for_where_they_are_needed(judge):
    assert judge("comet").judge([with_reference(["one"], None)])[0].statuses == (Status.MISSING_REFERENCE,)
    assert judge("cometkiwi").judge([with_reference(["one"], None)])[0].scores == (3.0,)


def test_a_hang_costs_the_deadline_and_the_next_call_has_a_new_process(judge):
    comet = judge()
    pid = pid_of(comet)
    comet.deadline_s = 0.3
    (verdict,) = comet.judge([with_reference(["one", "HANG"])])
    assert verdict.statuses == (Status.JUDGE_TIMEOUT,) * 2
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)  # what it was stuck in is gone
    comet.deadline_s = 120.0
    assert comet.judge([with_reference(["one"])])[0].scores == (3.0,)


@pytest.mark.parametrize("text", ["DIE", "ERROR", "FEW"])
def test_a_process_that_dies_or_refuses_leaves_a_status_and_the_next_call_scores(judge, text, caplog):
    comet = judge()
    (verdict,) = comet.judge([with_reference(["one", text])])
    assert verdict.statuses == (Status.JUDGE_UNREACHABLE,) * 2
    said = {"DIE": "it ended with status -6", "ERROR": "no room on the device", "FEW": "0 scores for 2 rows"}
    assert said[text] in caplog.text
    assert comet.judge([with_reference(["one"])])[0].scores == (3.0,)


def test_a_process_that_is_killed_between_calls_is_started_again(judge):
    comet = judge()
    os.kill(pid_of(comet), signal.SIGKILL)
    comet.worker._process._popen.wait(120)
    assert comet.judge([with_reference(["one"])])[0].scores == (3.0,)


def test_a_process_that_dies_again_and_again_does_not_load_its_model_for_every_call(judge, monkeypatch, caplog):
    comet, starts = judge(), []
    monkeypatch.setattr(worker, "_Process", lambda command, start=worker._Process: starts.append(1) or start(command))
    for _ in range(4):
        (verdict,) = comet.judge([with_reference(["one", "DIE"])])
        assert verdict.statuses == (Status.JUDGE_UNREACHABLE,) * 2
    assert len(starts) == 1
    assert "it failed 2 times in a row and rests for 60 s" in caplog.text
    comet.worker._rests_until = 0.0
    for _ in range(2):
        assert comet.judge([with_reference(["one"])])[0].scores == (3.0,)
        comet.judge([with_reference(["DIE"])])
    assert len(starts) == 3


def test_a_number_that_is_none_is_no_score(judge):
    (verdict,) = judge().judge([with_reference(["one", "NAN"])])
    assert verdict.statuses == (Status.SCORED, Status.JUDGE_UNPARSABLE)


@pytest.mark.parametrize(
    ("name", "number", "score"),
    [("comet", 0.85, 8.5), ("cometkiwi", 0.5, 5.0), ("bleurt", 0.7, 7.0), ("metricx", 0, 10.0), ("metricx", 25, 0.0)],
)
def test_numbers_are_scaled_to_ten(name, number, score):
    assert METRIC_KINDS[name].scale(number) == pytest.approx(score)


def test_what_cannot_be_opened_is_one_sentence(judge, tmp_path):
    with pytest.raises(UserError, match=r"COMET has no environment at '.*none': create it with `grrm scorer install"):
        opened_metric("comet", tmp_path / "none", seconds=5.0)
    with pytest.raises(UserError, match=r"BLEURT is not whole \(ModuleNotFoundError: No module named 'bleurt'\)"):
        opened_metric("bleurt", judge().worker._environment, "BLEURT-20", seconds=120.0)
    with pytest.raises(UserError, match="batch_size' is 0"):
        spec_of("comet").read({"batch_size": 0})


def test_half_a_character_of_a_translation_is_replaced_and_the_others_are_scored(judge, monkeypatch):
    comet, asked = judge(), []
    monkeypatch.setattr(comet.worker, "ask", lambda request, seconds: asked.append(request) or {"scores": [0.1, 0.2]})
    assert comet.judge([with_reference(["a\ud83d", "b"])])[0].scores == (1.0, 2.0)
    assert asked[0]["rows"] == [["src", "a\ufffd", "ref"], ["src", "b", "ref"]]


def test_a_hung_metric_is_left_out_of_a_mixture(environment):
    comet = {"judge": "comet", "options": {"environment": str(environment)}, "deadline_s": 120}
    mixture = open_mixture(read_sources([{"judge": "chrf"}, comet]))
    metric = mixture.parts[1].judge
    try:
        (verdict,) = mixture.judge([with_reference(["ref", "reff"])])
        assert [part.counts for part in verdict.parts] == [True, True]
        assert verdict.scores[0] == pytest.approx((10.0 + 3.0) / 2)
        metric.deadline_s = 0.3
        (verdict,) = mixture.judge([with_reference(["ref", "HANG"])])
        assert [part.counts for part in verdict.parts] == [True, False]
        assert verdict.scores[0] == pytest.approx(10.0)
    finally:
        metric.worker.close()


def test_a_server_hosts_it(environment):
    hosted = build_hosted_judge(Settings(judge="cometkiwi", judge_options={"environment": str(environment)}))
    try:
        answer = make_client(hosted).post("/v1/score", json=score_body(group("g", "one", "three")))
        assert [c["score"] for c in json.loads(answer.data)["verdicts"][0]["candidates"]] == [3.0, 5.0]
        assert hosted.model == "wmt22-cometkiwi-da"
    finally:
        hosted.judge.worker.close()
