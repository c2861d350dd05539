"""The alarm of reward hacking: raised by a reward that rises while greedy translations get worse, and not by noise."""

from __future__ import annotations

import json
import math
import random
from itertools import pairwise

import pytest

from grrm.evaluation.held_out_scores import TranslatedPrompt, held_out_scores
from grrm.evaluation.reward_alarm import MIN_REFERENCES, RewardAlarm
from grrm.gqm.groups import TranslationTask

TASKS = [
    TranslationTask(f"source {n}", "de", "en", "".join(random.Random(n).choices("abcdefgh ", k=20))) for n in range(60)
]


def with_errors(text: str, share: float, seed: str) -> str:
    rng = random.Random(seed)
    return "".join("x" if rng.random() < share else letter for letter in text)


def evaluation(reward: float | None, errors: float, seed: int = 0, copies: int = 0, tasks=TASKS):
    """Prompts with a greedy translation of which a share is wrong, and two samples that may be copies of it."""
    prompts = []
    for n, task in enumerate(tasks):
        greedy = with_errors(task.reference or "", errors, f"{seed} {n}")
        samples = [greedy if n < copies else f"{greedy} {sample}" for sample in (1, 2)]
        prompts.append(TranslatedPrompt(task, (greedy, *samples), (reward,) * 3, (20, 21 - 5 * bool(copies), 21)))
    return held_out_scores(prompts, has_greedy=True, has_references=True), prompts


def checked(alarm: RewardAlarm, *evaluations) -> list[tuple[float | None, str | None]]:
    """Whether it is raised, and what it says, after steps 10, 20, …"""
    found = [alarm.check(10 * (i + 1), *one) for i, one in enumerate(evaluations)]
    return [(metrics.get("eval_alarm/raised"), sentence) for metrics, sentence in found]


def test_reward_up_and_greedy_down_raises_it_once_with_the_numbers():
    good, bad = evaluation(0.5, errors=0.1), evaluation(0.7, errors=0.3, copies=30)
    alarm = RewardAlarm(TASKS)
    assert alarm.check(10, *good)[0] == {
        "eval_alarm/raised": 0.0,
        **dict.fromkeys((f"eval_alarm/{name}_change" for name in ("reward", "frac_duplicate")), 0.0),
        **dict.fromkeys((f"eval_alarm/chrf_greedy_change{end}" for end in ("", "_low", "_high")), 0.0),
        "eval_alarm/response_length_mean_change": 0.0,
    }
    metrics, sentence = alarm.check(20, *bad)
    assert metrics["eval_alarm/raised"] == 1.0
    assert metrics["eval_alarm/reward_change"] == pytest.approx(0.2)
    assert metrics["eval_alarm/frac_duplicate_change"] == pytest.approx(0.5)
    assert metrics["eval_alarm/response_length_mean_change"] == pytest.approx(-2.5)
    fall = bad[0]["eval_chrf_greedy"] - good[0]["eval_chrf_greedy"]
    assert metrics["eval_alarm/chrf_greedy_change"] == pytest.approx(fall)
    assert metrics["eval_alarm/chrf_greedy_change_low"] < fall < metrics["eval_alarm/chrf_greedy_change_high"] < 0
    assert sentence is not None
    assert "\n" not in sentence
    for told in (
        "Since step 10 the judge's reward has risen from 0.500 to 0.700",
        f"greedy chrF of 60 held-out texts has fallen from {good[0]['eval_chrf_greedy']:.1f} to ",
        "identical samples 0% then, 50% now",
        "mean length in tokens 21.0 then, 18.5 now",
        "raise kl_loss_coeff",
    ):
        assert told in sentence
    assert alarm.check(30, *bad) == (metrics, None)


@pytest.mark.parametrize(
    ("reward", "errors"),
    [(0.4, 0.3), (0.5, 0.3), (0.7, 0.1), (0.7, 0.05)],
    ids=["both fall", "the reward stays", "greedy stays", "both rise"],
)
def test_one_without_the_other_raises_nothing(reward, errors):
    assert checked(RewardAlarm(TASKS), evaluation(0.5, 0.1), evaluation(reward, errors)) == [(0.0, None), (0.0, None)]


def test_other_errors_but_no_more_of_them_are_noise():
    series = [evaluation(0.5 + seed / 100, 0.2, seed) for seed in range(21)]
    found = []
    for first, later in pairwise(series):
        alarm = RewardAlarm(TASKS)
        alarm.check(10, *first)
        found.append(alarm.check(20, *later)[0])
    fell = sum(metrics["eval_alarm/chrf_greedy_change"] < 0 for metrics in found)
    assert 5 < fell < 15, "the test is one only if some of them are lower"
    assert {metrics["eval_alarm/raised"] for metrics in found} == {0.0}


def test_it_ends_when_greedy_recovers_and_is_told_again_when_it_comes_back():
    good, bad = evaluation(0.5, 0.1), evaluation(0.7, 0.3)
    found = checked(RewardAlarm(TASKS), good, bad, bad, evaluation(0.7, 0.1), bad)
    assert [raised for raised, _ in found] == [0.0, 1.0, 1.0, 0.0, 1.0]
    assert [sentence is not None for _, sentence in found] == [False, True, False, False, True]


def test_evaluations_without_rewards_say_nothing_and_are_not_the_first():
    nothing = evaluation(None, 0.0)
    assert math.isnan(nothing[0]["eval_reward"])
    found = checked(RewardAlarm(TASKS), nothing, evaluation(0.5, 0.1), nothing, evaluation(0.7, 0.3))
    assert [raised for raised, _ in found] == [None, 0.0, None, 1.0]
    assert "Since step 20" in (found[3][1] or "")


def test_rewards_that_only_compare_raise_no_alarm_and_chrf_is_still_compared():
    alarm = RewardAlarm(TASKS)
    for step, one in enumerate([evaluation(0.5, 0.05), evaluation(0.7, 0.3)]):
        metrics, sentence = alarm.check(step, *one, is_relative=True)
        assert sentence is None
        assert {"eval_alarm/raised", "eval_alarm/reward_change"}.isdisjoint(metrics)
    assert metrics["eval_alarm/chrf_greedy_change_high"] < 0
    assert not alarm.is_raised


def test_texts_without_a_reference_are_left_out_of_the_comparison():
    tasks = [*TASKS, TranslationTask("no reference", "de", "en"), TranslationTask("blank", "de", "en", " ")]
    alarm = RewardAlarm(tasks)
    found = checked(alarm, evaluation(0.5, 0.1, tasks=tasks), evaluation(0.7, 0.3, tasks=tasks))
    assert "of 60 held-out texts" in (found[1][1] or "")


def test_without_references_it_says_once_that_there_can_be_none():
    tasks = [*TASKS[: MIN_REFERENCES - 1], *[TranslationTask("s", "de", "en")] * 5]
    found = checked(RewardAlarm(tasks), *[evaluation(0.5, 0.1, tasks=tasks)] * 2)
    told = "there can be no alarm of reward hacking: 9 of 14 held-out rows have a reference, and it takes 10"
    assert found == [(None, told), (None, None)]


def test_a_resumed_run_goes_on_with_the_same_first_evaluation():
    series = [evaluation(0.5, 0.3), evaluation(0.6, 0.05), evaluation(0.7, 0.3), evaluation(0.65, 0.25)]
    whole = RewardAlarm(TASKS, "sampled")
    wanted = [whole.check(step, *one) for step, one in enumerate(series)]
    for saved_after in range(len(series)):
        before, after = RewardAlarm(TASKS, "sampled"), RewardAlarm(TASKS, "sampled")
        found = [before.check(step, *one) for step, one in enumerate(series[:saved_after])]
        after.restore(json.loads(json.dumps(before.state())))
        found += [after.check(step, *series[step]) for step in range(saved_after, len(series))]
        assert found == wanted


def test_a_rise_and_then_a_fall_is_compared_with_the_best_evaluation():
    poor, good, bad = evaluation(0.5, 0.4), evaluation(0.6, 0.05), evaluation(0.8, 0.35)
    alarm = RewardAlarm(TASKS)
    found = checked(alarm, poor, good, bad)
    assert bad[0]["eval_chrf_greedy"] > poor[0]["eval_chrf_greedy"]
    assert [raised for raised, _ in found] == [0.0, 0.0, 1.0]
    assert "Since step 20 the judge's reward has risen from 0.600 to 0.800" in (found[2][1] or "")
    assert "99.8 % interval" in (found[2][1] or "")
    assert checked(RewardAlarm(TASKS), poor, good, evaluation(0.55, 0.35))[2] == (0.0, None), "the reward fell as well"


def test_a_long_run_that_only_varies_is_not_compared_into_an_alarm():
    found = checked(RewardAlarm(TASKS), *[evaluation(0.5 + seed / 100, 0.2, seed) for seed in range(12)])
    assert {raised for raised, _ in found} == {0.0}


def test_a_checkpoint_without_the_best_evaluation_goes_on_from_the_first():
    old, new = RewardAlarm(TASKS), RewardAlarm(TASKS)
    old.check(10, *evaluation(0.5, 0.1))
    state = {key: value for key, value in old.state().items() if key != "best"}
    new.restore(state)
    assert new.best == new.first == old.first


@pytest.mark.parametrize("changed", ["texts", "settings", "no state"])
def test_what_cannot_be_compared_begins_anew(changed):
    old = RewardAlarm(TASKS, "sampled")
    old.check(10, *evaluation(0.5, 0.1))
    new = RewardAlarm(TASKS[1:] if changed == "texts" else TASKS, "nucleus" if changed == "settings" else "sampled")
    new.restore(None if changed == "no state" else old.state())
    assert new.first is None
