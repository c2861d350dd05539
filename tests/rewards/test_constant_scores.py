"""When one score for everything is worth a warning."""

from __future__ import annotations

from grrm.rewards.constant_scores import FIRST_ALARM, ConstantScoreAlarm


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
