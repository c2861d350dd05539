"""Learned metrics of files, in environments of their own: real environments, with small stand-ins for the packages."""

from __future__ import annotations

import pytest
from support.metric_environments import BLEURT, COMET, TORCH, install, make_environment

from grrm.errors import UserError
from grrm.evaluation.mt_scores import learned_scores
from grrm.judges.metric_worker import MetricWorker


@pytest.fixture
def environment(tmp_path):
    return make_environment(tmp_path)


@pytest.fixture
def scores(environment):
    def of_metric(name, *texts, model=None, seconds=120.0):
        return learned_scores(MetricWorker(name, environment, model), *texts, seconds)

    return of_metric


def test_comet_scores_come_back_in_order(environment, scores):
    install(environment, comet=COMET, torch=TORCH)
    assert scores("comet", ["a", "bb"], ["xy", None], ["wxyz", "w"]) == [1.5, 2.0]


def test_bleurt_scores_come_back_in_order(environment, scores):
    install(environment, bleurt="", bleurt_score=BLEURT)
    assert scores("bleurt", ["a", "b"], ["x", "y"], ["x", "z"], model="BLEURT-20") == [1.0, 0.0]


def test_an_environment_without_the_package_gets_the_command_too(scores):
    with pytest.raises(UserError, match=r"No module named 'bleurt'.*create it with `grrm scorer install bleurt"):
        scores("bleurt", ["a"], ["b"], ["c"], model="BLEURT-20")


def test_bleurt_needs_a_model(scores):
    with pytest.raises(UserError, match=r"BLEURT needs a model: give the folder"):
        scores("bleurt", ["a"], ["b"], ["c"])


def test_a_failure_is_told_in_the_programs_own_last_words(environment, scores):
    install(environment, comet=COMET, torch=TORCH)
    with pytest.raises(UserError, match=r"COMET failed with model 'nowhere' \(OSError: no such model\)"):
        scores("comet", ["a"], ["b"], ["c"], model="nowhere")


@pytest.mark.parametrize(
    ("package", "text", "message"),
    [
        (COMET, "NAN", "gave 0 finite scores for 1 rows"),
        (COMET, "FEW", "it answered 0 scores for 1 rows"),
        ("import os; os._exit(0)", "b", "it ended with status 0"),
    ],
)
def test_what_is_no_score_of_each_row_is_refused(environment, scores, package, text, message):
    install(environment, comet=package, torch=TORCH)
    with pytest.raises(UserError, match=message):
        scores("comet", ["a"], [text], ["c"])


def test_nothing_waits_beyond_the_deadline(environment, scores):
    install(environment, comet="import time; time.sleep(60)", torch=TORCH)
    with pytest.raises(UserError, match=r"did not end within 0\.5 s"):
        scores("comet", ["a"], ["b"], ["c"], seconds=0.5)


def test_cometkiwi_is_shown_no_reference(environment, scores):
    install(environment, comet=COMET, torch=TORCH)
    assert scores("cometkiwi", ["a"], ["xy"], ["wxyz"]) == [3.0]
