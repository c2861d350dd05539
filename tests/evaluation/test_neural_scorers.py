"""Learned metrics of files, in environments of their own: real environments, with small stand-ins for the packages."""

from __future__ import annotations

import pytest
from support.metric_environments import BLEURT, COMET, TORCH, install, make_environment

from grrm.errors import UserError
from grrm.evaluation.mt_scores import NeuralScorer


@pytest.fixture
def environment(tmp_path):
    return make_environment(tmp_path)


def test_comet_scores_come_back_in_order(environment):
    install(environment, comet=COMET, torch=TORCH)
    scores = NeuralScorer("comet", environment).score(["a", "bb"], ["xy", None], ["wxyz", "w"])
    assert scores == [1.5, 2.0]


def test_bleurt_scores_come_back_in_order(environment):
    install(environment, bleurt="", bleurt_score=BLEURT)
    scores = NeuralScorer("bleurt", environment, "BLEURT-20").score(["a", "b"], ["x", "y"], ["x", "z"])
    assert scores == [1.0, 0.0]


def test_a_missing_environment_is_one_sentence_with_the_command_that_creates_it(tmp_path):
    with pytest.raises(UserError) as caught:
        NeuralScorer("comet", tmp_path / "no where")
    assert f"create it with `grrm scorer install comet --folder '{tmp_path}/no where'`" in str(caught.value)


def test_an_environment_without_the_package_gets_the_command_too(environment):
    with pytest.raises(UserError, match=r"No module named 'bleurt'.*create it with `grrm scorer install bleurt"):
        NeuralScorer("bleurt", environment, "BLEURT-20").score(["a"], ["b"], ["c"])


def test_bleurt_needs_a_model(environment):
    with pytest.raises(UserError, match=r"BLEURT needs a model: give the folder"):
        NeuralScorer("bleurt", environment)


def test_a_failure_is_told_in_the_programs_own_last_words(environment):
    install(environment, comet=COMET, torch=TORCH)
    with pytest.raises(UserError, match=r"COMET failed with model 'nowhere' \(OSError: no such model\)"):
        NeuralScorer("comet", environment, "nowhere").score(["a"], ["b"], ["c"])


@pytest.mark.parametrize(
    ("package", "text", "message"),
    [
        (COMET, "NAN", "gave 0 finite scores for 1 rows"),
        (COMET, "FEW", "it answered 0 scores for 1 rows"),
        ("import os; os._exit(0)", "b", "it ended with status 0"),
    ],
)
def test_what_is_no_score_of_each_row_is_refused(environment, package, text, message):
    install(environment, comet=package, torch=TORCH)
    with pytest.raises(UserError, match=message):
        NeuralScorer("comet", environment).score(["a"], [text], ["c"])


def test_nothing_waits_beyond_the_deadline(environment):
    install(environment, comet="import time; time.sleep(60)", torch=TORCH)
    with pytest.raises(UserError, match=r"did not end within 0\.5 s"):
        NeuralScorer("comet", environment, deadline_s=0.5).score(["a"], ["b"], ["c"])


def test_cometkiwi_is_shown_no_reference(environment):
    install(environment, comet=COMET, torch=TORCH)
    assert NeuralScorer("cometkiwi", environment).score(["a"], ["xy"], ["wxyz"]) == [3.0]
