"""Pairwise ranking accuracy against a slow but obvious count, and the cases in which there is nothing to count."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.errors import UserError
from grrm.evaluation.ranking import JudgedGroup, score_by_language_pair, score_ranking, zero_variance_share

SCORE = st.one_of(st.none(), st.integers(0, 4).map(float))
GROUP = st.lists(st.tuples(SCORE, SCORE), max_size=5).map(
    lambda rows: JudgedGroup("de-en", [gold for gold, _ in rows], [judged for _, judged in rows])
)
RULES = st.tuples(st.sampled_from(["wrong", "half", "skip"]), st.sampled_from(["skip", "wrong"]))


def outcomes(groups):
    """ "right", "tied", "wrong" or "unscored" of every pair of candidates whose gold scores differ."""
    found = []
    for group in groups:
        for a, b in combinations(range(len(group.gold)), 2):
            gold, judged = (group.gold[a], group.gold[b]), (group.judged[a], group.judged[b])
            if None in gold or gold[0] == gold[1]:
                continue
            if None in judged:
                found.append("unscored")
            elif judged[0] == judged[1]:
                found.append("tied")
            else:
                found.append("right" if (gold[0] < gold[1]) == (judged[0] < judged[1]) else "wrong")
    return found


@given(st.lists(GROUP, max_size=6), RULES)
def test_accuracy_is_what_counting_pairs_one_by_one_gives(groups, rules):
    ties, unscored = rules
    scores = score_ranking(groups, ties=ties, unscored=unscored, n_resamples=20)
    found = outcomes(groups)
    points = {"right": 1.0, "wrong": 0.0}
    points |= {} if ties == "skip" else {"tied": 0.5 if ties == "half" else 0.0}
    points |= {"unscored": 0.0} if unscored == "wrong" else {}
    counted = [points[outcome] for outcome in found if outcome in points]
    assert scores.n_pairs == len(found)
    if counted:
        assert scores.accuracy.mean == pytest.approx(sum(counted) / len(counted))
        assert 0 <= scores.accuracy.low <= scores.accuracy.high <= 1
    else:
        assert scores.accuracy is None
    judged = [outcome for outcome in found if outcome != "unscored"]
    assert scores.coverage == (pytest.approx(len(judged) / len(found)) if found else None)
    assert scores.tied == (pytest.approx(judged.count("tied") / len(judged)) if judged else None)


@given(st.lists(GROUP, max_size=6), RULES)
def test_a_judge_that_knows_the_gold_scores_is_always_right(groups, rules):
    known = [JudgedGroup(group.language_pair, group.gold, group.gold) for group in groups]
    scores = score_ranking(known, ties=rules[0], unscored=rules[1], n_resamples=20)
    assert scores.accuracy is None or (scores.accuracy.low, scores.accuracy.mean) == (1.0, 1.0)


@given(st.lists(GROUP, max_size=6))
def test_turning_every_judgement_round_turns_the_accuracy_round(groups):
    turned = [
        JudgedGroup(g.language_pair, g.gold, [None if score is None else -score for score in g.judged]) for g in groups
    ]
    before, after = (score_ranking(some, ties="half", n_resamples=20).accuracy for some in (groups, turned))
    assert (before is None) == (after is None)
    if before is not None:
        assert before.mean + after.mean == pytest.approx(1.0)


def test_a_judge_without_any_score_has_no_accuracy():
    scores = score_ranking([JudgedGroup("de-en", [1.0, 2.0], [None, None])] * 3)
    assert (scores.accuracy, scores.coverage, scores.zero_variance) == (None, 0.0, None)
    assert score_ranking([]).accuracy is None


def test_groups_without_variance_are_those_that_could_have_had_some():
    assert zero_variance_share([[5, 5], [5, 6], [5, None], [None, 5, 5], []]) == pytest.approx(2 / 3)
    assert zero_variance_share([[5]]) is None


def test_language_pairs_are_scored_apart_and_together():
    groups = [JudgedGroup("zh-en", [1, 2], [2, 1]), JudgedGroup("de-en", [1, 2], [1, 2])]
    scores = score_by_language_pair(groups)
    assert list(scores) == ["de-en", "zh-en", "all"]
    assert [scores[name].accuracy.mean for name in scores] == [1.0, 0.0, 0.5]


def test_rules_that_do_not_exist_and_lists_that_do_not_match_are_refused():
    with pytest.raises(UserError, match="'perhaps'"):
        score_ranking([], ties="perhaps")
    with pytest.raises(ValueError, match="1 gold scores for 2"):
        JudgedGroup("de-en", [1], [1, 2])
