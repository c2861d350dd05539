"""The reward of a single-translation judge falls with the distance of its score from the gold one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.errors import UserError
from grrm.gqm.groups import Status
from grrm.rewards.answers import RuleResult
from grrm.rewards.ranking_accuracy import INVALID, RankingReward, ranking_score_reward
from grrm.rewards.rule_rewards import AnswerReward, grade_reward, parts_of, rule_reward_function, single_score_reward

GOLD = '{"A": 7}'


CREDITS = [("7", 1.0), ("8", 0.8), ("5", 0.4), ("10", 0.2), ("3", 0.0), ("0", 0.0)]


@pytest.mark.parametrize(("score", "credit"), CREDITS)
def test_credit_falls_with_the_distance_as_the_originals_does(score, credit):
    found = single_score_reward(f"The amount is wrong.\n\n{score}", GOLD)
    assert found == RankingReward(credit, True, None, credit)


def test_a_score_of_one_line_is_read_whole():
    assert single_score_reward("10", '{"A": 10}').score == 1.0


@pytest.mark.parametrize("text", ["", "good", "Score: 7 of 10", "11", "-1", "7.5"])
def test_what_is_no_whole_score_from_0_to_10_earns_nothing(text):
    assert single_score_reward(text, GOLD) == INVALID


@given(st.text(max_size=40))
def test_no_text_raises_or_leaves_the_range(text):
    assert 0 <= single_score_reward(text, GOLD).score <= 1


@pytest.mark.parametrize("truth", ['{"A": 7, "B": 3}', "{}", "A > B", '{"A": 11}'])
def test_a_ground_truth_that_is_not_one_score_is_an_error(truth):
    with pytest.raises(UserError, match="ground truth"):
        single_score_reward("7", truth)


def test_rewards_are_chosen_by_name():
    assert rule_reward_function("ranking_score") is ranking_score_reward
    with pytest.raises(UserError, match="unknown rule reward 'rank': did you mean 'ranking'"):
        rule_reward_function("rank")


@pytest.mark.parametrize(
    ("text", "truth", "credit"),
    [("Total Score: 8/10", "0.8", 1.0), ("Total Score: [5]", "1", 0.25), ("Total Score: 12", "1.0", 1.0)],
)
def test_a_grade_earns_by_its_distance(text, truth, credit):
    found = grade_reward(f"Fine.\n{text}", truth)
    assert (found.score, found.score_reward, found.valid_answer) == pytest.approx((credit, credit, True))
    assert found.ranking_reward is None


@given(st.one_of(st.text(max_size=20), st.floats().map(str)), st.floats(0, 1))
def test_no_total_earns_outside_0_to_1(text, truth):
    assert 0 <= grade_reward(f"Total Score: {text}", str(truth)).score <= 1


@pytest.mark.parametrize("text", ["Total Score: 7/1", "Total Score: 7/100", "Total Score: -1/10", "Total Score: nan"])
def test_training_does_not_reward_a_total_that_the_rubric_judge_refuses(text):
    rule = rule_reward_function("grade")
    assert rule(text, "0.7") == INVALID
    assert rule("Total Score: 7/10", "0.7").score == 1.0


@pytest.mark.parametrize("truth", ["A > B", "8", "-0.1", "nan", '{"A": 1}', {"A": 1}])
def test_a_grade_that_is_not_from_0_to_1_is_an_error(truth):
    with pytest.raises(UserError, match="ground truth"):
        grade_reward("", truth)


def test_a_right_answer_earns_one_and_a_missing_one_is_not_valid():
    rule = rule_reward_function("gsm8k")
    assert rule("3 * 4\n#### 12", "12").score == 1.0
    assert rule("3 * 4\n#### 13", "12") == RankingReward(0.0, True, None, 0.0)
    assert rule("I do not know", "12") == INVALID
    assert parts_of(rule) == ("score_reward",)


def test_an_answer_that_the_rule_cannot_decide_carries_the_failure_and_no_reward():
    undecided = AnswerReward(lambda solution, truth: RuleResult(False, "12", Status.JUDGE_TIMEOUT))
    found = undecided("#### 12", "12")
    assert (found.valid_answer, found.status, found.score) == (False, Status.JUDGE_TIMEOUT, 0.0)


@pytest.mark.parametrize("truth", ['{"A": 8, "B": 3}', '{"source":"zwei","src_lang":"de","trg_lang":"en"}'])
def test_answers_are_not_compared_with_the_truth_of_another_kind_of_rows(truth):
    with pytest.raises(UserError, match="is of another kind of rows"):
        rule_reward_function("normalised")("\\boxed{4}", truth)


@pytest.mark.parametrize(("name", "truth"), [("exact", " "), ("exact", {"A": 1}), ("knights_and_knaves", "12")])
def test_a_true_answer_that_the_rule_cannot_use_is_an_error(name, truth):
    with pytest.raises(UserError, match="ground truth"):
        rule_reward_function(name)("", truth)
