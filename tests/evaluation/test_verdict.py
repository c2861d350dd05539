"""Whether training helped: paired changes of held-out scores, and the word that they allow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grrm.evaluation.bootstrap import LEVEL
from grrm.evaluation.held_out_scores import TranslatedPrompt, compares_only
from grrm.evaluation.text_metrics import corpus_chrf
from grrm.evaluation.verdict import Change, Verdict, verdict_of
from grrm.gqm.groups import TranslationTask

REFERENCE = "the quick brown fox jumps over the lazy dog"
GOOD, POOR = REFERENCE, "the quick cat"


def prompts(greedy, sampled, rewards=None, references=True):
    """Rows with one greedy translation and two equal samples each."""
    return [
        TranslatedPrompt(
            TranslationTask(f"Satz {i}", "de", "en", REFERENCE if references else None),
            (one, other, other),
            (0.5, *([0.5, 0.5] if rewards is None else [rewards[i]] * 2)),
            (3, 3, 3),
        )
        for i, (one, other) in enumerate(zip(greedy, sampled, strict=True))
    ]


def judged(before, after, **options):
    settings = {"steps": (0, 7), "has_greedy": True, "has_references": True, **options}
    return verdict_of(before, after, **settings)


def mixed(n_good, n_rows=40):
    return [GOOD] * n_good + [POOR] * (n_rows - n_good)


def test_a_gain_beyond_its_interval_helped_and_its_numbers_are_those_of_sacrebleu():
    verdict = judged(prompts(mixed(20), mixed(5)), prompts(mixed(20), mixed(25)), kl=0.01)
    assert verdict.verdict == "helped"
    assert verdict.reason == "chrF of samples has risen"
    change = verdict.changes["chrf"]
    for value, n_good in ((change.before, 5), (change.after, 25)):
        assert value == pytest.approx(corpus_chrf(mixed(n_good), [REFERENCE] * 40).score, abs=1e-9)
    assert 0 < change.low < change.after - change.before < change.high
    assert verdict.changes["chrf_greedy"] == Change(*[verdict.changes["chrf_greedy"].before] * 2, 0.0, 0.0)
    assert (verdict.rows, verdict.references, verdict.kl) == (40, 40, 0.01)


def test_a_gain_inside_its_interval_is_not_called_one():
    verdict = judged(prompts(mixed(20), mixed(20)), prompts(mixed(21), mixed(21)))
    assert verdict.verdict == "cannot tell"
    assert verdict.changes["chrf"].after > verdict.changes["chrf"].before
    first, *rest = verdict.lines()
    assert first == "verdict: cannot tell (changes of chrF are within noise; steps 0 to 7, 40 held-out rows)"
    assert all("helped" not in line for line in rest)
    assert f"{LEVEL:.0%} interval" in rest[0]
    assert rest[0].endswith(", within noise)")


def test_better_samples_do_not_make_up_for_worse_greedy_translations():
    verdict = judged(prompts(mixed(30), mixed(5)), prompts(mixed(5), mixed(30)))
    assert (verdict.verdict, verdict.reason) == ("did not help", "chrF, greedy has fallen")


def test_without_references_the_reward_decides_and_that_is_said():
    low, high = ([0.1 + 0.001 * i for i in range(40)], [0.3 + 0.002 * i for i in range(40)])
    pair = [prompts(mixed(5), mixed(5), rewards, references=False) for rewards in (low, high)]
    verdict = judged(*pair)
    assert verdict.verdict == "helped"
    assert verdict.reason == "judge's reward of samples has risen, and only 0 rows have a reference"
    assert set(verdict.changes) == {"reward", "reward_greedy"}
    assert judged(*pair, has_references=False).changes == verdict.changes
    assert judged(*reversed(pair)).verdict == "did not help"


def test_rewards_that_only_compare_the_translations_of_an_evaluation_decide_nothing():
    """Those of a reward model: 5 and more for the better one of each group, whatever the policy."""
    sides = []
    for gap in (0.1, 0.02):  # samples come nearer to greedy translations
        rewards = [(0.5 + gap * (1 + i / 40), *[0.5 - gap * (1 + i / 40) / 2] * 2) for i in range(40)]
        rewards[0] = (1.0, 0.1, 0.1)  # clipped
        rows = prompts(mixed(5), mixed(5), references=False)
        sides.append([replace(row, rewards=own) for row, own in zip(rows, rewards, strict=True)])
    verdict = judged(*sides)
    assert (verdict.verdict, verdict.changes) == ("cannot tell", {})
    assert verdict.reason.startswith("the judge compares translations of one evaluation with each other alone")
    tasks = [row.task for row in prompts(mixed(5), mixed(5))]
    compared = [[replace(row, task=task) for row, task in zip(side, tasks, strict=True)] for side in sides]
    assert set(judged(*compared).changes) == {"chrf", "chrf_greedy"}
    assert not compares_only(sides[0][:9])
    assert not compares_only(sides[0][1:2] * 40)
    assert not compares_only(prompts(mixed(5), mixed(5), [0.1 + 0.001 * i for i in range(40)]))


def test_rewards_of_a_minority_of_the_rows_are_not_shown():
    few = [None] * 21 + [0.5] * 19
    assert "reward" not in judged(prompts(mixed(5), mixed(5), few), prompts(mixed(5), mixed(5), few)).changes


def test_rows_without_a_reward_are_left_out_on_both_sides():
    rewards = [None] * 20 + [0.2] * 20
    change = judged(prompts(mixed(5), mixed(5), rewards), prompts(mixed(5), mixed(5), [0.9] * 20 + [0.3] * 20)).changes
    assert (change["reward"].before, change["reward"].after) == (pytest.approx(0.2), pytest.approx(0.3))
    none = judged(prompts(mixed(5), mixed(5), [None] * 40), prompts(mixed(5), mixed(5)))
    assert "reward" not in none.changes


def test_too_few_rows_allow_no_word():
    few = [prompts(mixed(n, 9), mixed(n, 9)) for n in (0, 9)]
    verdict = judged(*few)
    assert (verdict.verdict, verdict.reason) == ("cannot tell", "it takes 10 held-out rows")


def test_without_samples_or_greedy_translations_the_other_decides():
    sampled_only = [
        [TranslatedPrompt(one.task, one.translations[1:], one.rewards[1:], (3, 3)) for one in side]
        for side in (prompts(mixed(5), mixed(5)), prompts(mixed(5), mixed(35)))
    ]
    verdict = judged(*sampled_only, has_greedy=False)
    assert (verdict.verdict, set(verdict.changes)) == ("helped", {"chrf", "reward"})
    greedy_only = [
        [TranslatedPrompt(one.task, one.translations[:1], one.rewards[:1], (3,)) for one in side]
        for side in (prompts(mixed(35), mixed(5)), prompts(mixed(5), mixed(5)))
    ]
    verdict = judged(*greedy_only)
    assert (verdict.verdict, set(verdict.changes)) == ("did not help", {"chrf_greedy", "reward_greedy"})


def test_evaluations_of_other_rows_or_decoding_are_not_compared():
    before = prompts(mixed(5), mixed(5))
    with pytest.raises(ValueError, match="different rows"):
        judged(before, before[:-1])
    with pytest.raises(ValueError, match="decode differently"):
        judged(before, [TranslatedPrompt(one.task, one.translations[:2], one.rewards[:2], (3, 3)) for one in before])


def test_json_and_back():
    verdict = judged(prompts(mixed(20), mixed(5)), prompts(mixed(20), mixed(25)))
    assert Verdict.from_json(verdict.to_json()) == verdict
