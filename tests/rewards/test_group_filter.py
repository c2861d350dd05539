from __future__ import annotations

import pytest

from grrm.gqm.groups import Status
from grrm.rewards.group_filter import (
    FIRST_ALARM,
    ConstantScoreAlarm,
    GroupSignal,
    classify_group,
    informative_groups,
    why_silent,
    zero_variance_metrics,
)
from grrm.rewards.shaping import ShapedRewards

S, D, U = Status.SCORED, Status.DUPLICATE, Status.UNPARSABLE_CANDIDATE


def shaped(rewards, statuses, judged=None, dropped=False):
    if judged is None:
        judged = [reward if status.is_scored else None for reward, status in zip(rewards, statuses, strict=True)]
    return ShapedRewards(tuple(rewards), tuple(judged), tuple(statuses), dropped)


DIFFERENT = shaped([0.1, 0.2], [S, S])
EQUAL = shaped([0.3, 0.3], [S, S])
ONE_TEXT = shaped([0.3, 0.3], [S, D])
NOT_COMPARED = shaped([None, None], [Status.SINGLE_CANDIDATE] * 2)
FAILED = shaped([-0.04, -0.04], [U, U])
MASKED = shaped([0.1, None], [S, Status.JUDGE_TIMEOUT])
DROPPED = shaped([None, None], [S, Status.JUDGE_TIMEOUT], judged=[0.1, None], dropped=True)


@pytest.mark.parametrize(
    ("group", "signal"),
    [
        (DIFFERENT, GroupSignal.INFORMATIVE),
        (EQUAL, GroupSignal.EQUAL_SCORES),
        (ONE_TEXT, GroupSignal.IDENTICAL),
        (shaped([0.3, 0.3, 0.3], [S, D, S]), GroupSignal.EQUAL_SCORES),
        (NOT_COMPARED, GroupSignal.IDENTICAL),
        (FAILED, GroupSignal.ALL_FAILED),
        (MASKED, GroupSignal.TOO_FEW),
        (DROPPED, GroupSignal.DROPPED),
        (shaped([0.3, 0.3, -0.04], [S, S, U]), GroupSignal.INFORMATIVE),
        (shaped([0.3], [S]), GroupSignal.TOO_FEW),
        (shaped([0.3, 0.28], [S, S], judged=[0.3, 0.3]), GroupSignal.EQUAL_SCORES),
        (shaped([0.1, 0.1, 0.1], [S, S, S]), GroupSignal.EQUAL_SCORES),  # whatever the rounding of their mean
        (shaped([0.5, 0.5001], [S, S]), GroupSignal.INFORMATIVE),
    ],
)
def test_cause_of_a_silent_group(group, signal):
    assert classify_group(group) is signal


def test_only_informative_groups_are_kept_in_order():
    groups = [EQUAL, DIFFERENT, FAILED, MASKED, DROPPED, DIFFERENT]
    assert informative_groups(groups, 2) == [1, 5]


def test_message_blames_the_prompts_only_where_samples_have_scores():
    said = why_silent([EQUAL, DIFFERENT, EQUAL, ONE_TEXT])
    assert said.startswith(" (the others: 2 equal_scores, 1 identical): raise max_gen_batches")
    assert why_silent([DIFFERENT]).startswith(": raise max_gen_batches")
    gated = shaped([0.0, 0.0], [Status.WRONG_LANGUAGE] * 2)
    assert why_silent([gated, gated, EQUAL]) == (
        " (the others: 2 all_failed, 1 equal_scores): 4 samples of the all_failed groups are wrong_language: "
        "they fail the gate language; look at the responses"
    )
    assert "1 samples of the dropped groups are judge_timeout: the judge is too slow" in why_silent([DROPPED])


def test_torn_group_is_an_error_not_a_filter_case():
    with pytest.raises(ValueError, match="group 1 has 1 members instead of 2"):
        informative_groups([DIFFERENT, shaped([0.3], [S])], 2)


def test_metrics_split_silence_by_cause():
    metrics = zero_variance_metrics([DIFFERENT, EQUAL, ONE_TEXT, FAILED])
    assert metrics["frac_zero_variance"] == 0.75
    assert metrics["frac_zero_variance/equal_scores"] == 0.25
    assert metrics["frac_zero_variance/identical"] == 0.25
    assert metrics["frac_zero_variance/all_failed"] == 0.25
    assert sum(value for name, value in metrics.items() if "/" in name) == metrics["frac_zero_variance"]


def test_metrics_of_no_groups_are_zero():
    assert set(zero_variance_metrics([]).values()) == {0.0}


# --- when one score for everything is worth a warning


def test_alarm_comes_at_64_equal_scores_and_then_at_twice_as_many(caplog):
    alarm = ConstantScoreAlarm("the judge")
    rung = [number for number in range(1, 600) if alarm.watch([5.0])]
    assert rung == [FIRST_ALARM, 2 * FIRST_ALARM, 4 * FIRST_ALARM, 8 * FIRST_ALARM]
    assert "the judge gave its last 64 translations the same score, 5:" in caplog.text


def test_another_score_starts_the_count_again():
    alarm = ConstantScoreAlarm("the judge")
    assert not alarm.watch([5.0] * (FIRST_ALARM - 1) + [6.0])
    assert not alarm.watch([6.0] * (FIRST_ALARM - 2))
    assert alarm.watch([6.0])


def test_nothing_scored_is_no_alarm():
    alarm = ConstantScoreAlarm("the judge")
    assert not any(alarm.watch([]) for _ in range(2 * FIRST_ALARM))
