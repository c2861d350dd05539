"""Pairwise ranking accuracy against a slow but obvious count, and the cases in which there is nothing to count."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.evaluation.ranking import (
    JudgedGroup,
    accuracy_difference,
    by_language_pair,
    score_ranking,
    zero_variance_share,
)

SCORE = st.one_of(st.none(), st.integers(0, 4).map(float))
GROUP = st.lists(st.tuples(SCORE, SCORE), max_size=5).map(
    lambda rows: JudgedGroup("de-en", [gold for gold, _ in rows], [judged for _, judged in rows])
)
RULES = st.tuples(st.sampled_from(["wrong", "half", "skip"]), st.sampled_from(["skip", "wrong", "half"]))


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
    points |= {} if unscored == "skip" else {"unscored": 0.5 if unscored == "half" else 0.0}
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


@given(st.lists(GROUP, max_size=6))
def test_with_gold_ties_it_is_the_share_of_pairs_with_the_same_relation(groups):
    right = []
    for group in groups:
        rows = [row for row in zip(group.gold, group.judged, strict=True) if None not in row]
        for (gold_a, judged_a), (gold_b, judged_b) in combinations(rows, 2):
            relations = [(a > b) - (a < b) for a, b in ((gold_a, gold_b), (judged_a, judged_b))]
            right.append(relations[0] == relations[1])
    found = score_ranking(groups, gold_ties="count", n_resamples=20).accuracy
    assert (found and found.mean) == (pytest.approx(sum(right) / len(right)) if right else None)


@given(st.lists(st.tuples(GROUP, st.randoms()), max_size=5), RULES)
def test_a_difference_is_that_of_the_accuracies(drawn, rules):
    groups = [group for group, _ in drawn]
    others = [
        JudgedGroup("de-en", group.gold, random.sample(group.judged, len(group.judged))) for group, random in drawn
    ]
    options = {"ties": rules[0], "unscored": rules[1], "n_resamples": 20}
    before, after = (score_ranking(some, **options).accuracy for some in (groups, others))
    found = accuracy_difference(groups, others, **options)
    if before is None or after is None:
        assert found is None
    elif found is not None:  # of few resamples none may have pairs of both
        assert found.mean == pytest.approx(after.mean - before.mean)


def test_the_difference_of_a_judge_to_itself_has_no_width():
    groups = [JudgedGroup("de-en", [1, 2, 3], judged) for judged in ([1, 2, 3], [3, 1, 2], [2, 1, 3])]
    found = accuracy_difference(groups, groups)
    assert (found.low, found.mean, found.high) == (0.0, 0.0, 0.0)


def test_a_score_that_is_not_a_number_counts_as_none():
    nan, none = (score_ranking([JudgedGroup("de-en", [1.0, 2.0, 3.0], [1.0, x, 2.0])]) for x in (float("nan"), None))
    assert nan == none


def test_a_judge_without_any_score_has_no_accuracy():
    scores = score_ranking([JudgedGroup("de-en", [1.0, 2.0], [None, None])] * 3)
    assert (scores.accuracy, scores.coverage, scores.zero_variance) == (None, 0.0, None)
    assert score_ranking([]).accuracy is None


def test_groups_without_variance_are_those_that_could_have_had_some():
    assert zero_variance_share([[5, 5], [5, 6], [5, None], [None, 5, 5], []]) == pytest.approx(2 / 3)
    assert zero_variance_share([[5]]) is None


def test_language_pairs_are_scored_apart_and_together():
    groups = [JudgedGroup("zh-en", [1, 2], [2, 1]), JudgedGroup("de-en", [1, 2], [1, 2])]
    found = by_language_pair(groups)
    assert list(found) == ["de-en", "zh-en", "all"]
    assert [score_ranking(some).accuracy.mean for some in found.values()] == [1.0, 0.0, 0.5]


def test_lists_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match="1 gold scores for 2"):
        JudgedGroup("de-en", [1], [1, 2])
    with pytest.raises(ValueError, match="another order"):
        JudgedGroup("de-en", [1], [1], [[1, 2]])
    with pytest.raises(ValueError, match="different systems"):
        JudgedGroup("de-en", [1, 2], [1, 2], systems=["a", "a"])
