"""Soft pairwise accuracy against all permutations tried one by one, and its counterpart for samples."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.evaluation.ranking import JudgedGroup, score_ranking
from grrm.evaluation.soft_accuracy import p_values, soft_pairwise_accuracy, soft_sample_accuracy

SCORE = st.one_of(st.none(), st.integers(0, 4).map(float))
SYSTEMS = st.lists(st.sampled_from("abcd"), unique=True, max_size=4)
NAMED = SYSTEMS.flatmap(
    lambda names: st.lists(st.tuples(SCORE, SCORE), min_size=len(names), max_size=len(names)).map(
        lambda rows: JudgedGroup("de-en", [a for a, _ in rows], [b for _, b in rows], systems=names)
    )
)


def p_value(differences):
    """The share of all sign changes with a sum of at least that of the differences."""
    sums = [
        sum(sign * d for sign, d in zip(signs, differences, strict=True))
        for signs in product((1, -1), repeat=len(differences))
    ]
    return sum(total >= sum(differences) for total in sums) / len(sums)


def by_hand(groups):
    scores = [
        {
            name: (gold, judged)
            for name, gold, judged in zip(group.systems, group.gold, group.judged, strict=True)
            if None not in (gold, judged)
        }
        for group in groups
    ]
    agreements = []
    for a, b in combinations("abcd", 2):
        common = [of_group for of_group in scores if a in of_group and b in of_group]
        if common:
            p_gold, p_judged = (p_value([one[a][k] - one[b][k] for one in common]) for k in range(2))
            agreements.append(1 - abs(p_gold - p_judged))
    return sum(agreements) / len(agreements) if agreements else None


@given(st.lists(NAMED, max_size=6))
def test_it_is_what_trying_every_permutation_gives(groups):
    found, expected = soft_pairwise_accuracy(groups), by_hand(groups)
    assert found == (None if expected is None else pytest.approx(expected))


def test_permutations_that_are_drawn_come_close_to_all_of_them():
    draw = np.random.default_rng(0)
    differences = draw.normal(0.2, 1.0, size=(12, 5))
    exact, drawn = p_values(differences, 2**12), p_values(differences, 2000, seed=1)
    assert exact == pytest.approx([p_value(column) for column in differences.T])
    assert np.abs(exact - drawn).max() < 0.05
    assert (drawn == p_values(differences, 2000, seed=1)).all()


def test_a_judge_that_is_surer_than_the_gold_scores_loses_something():
    draw = np.random.default_rng(0)
    gold = [[one, one + 0.1] for one in draw.normal(size=30)]
    noisy = [[a + draw.normal(), b + draw.normal()] for a, b in gold]

    def accuracy(judged):
        pairs = zip(gold, judged, strict=True)
        return soft_pairwise_accuracy([JudgedGroup("de-en", *pair, systems=["x", "y"]) for pair in pairs])

    assert accuracy(gold) == 1.0
    assert 0.5 < accuracy(noisy) < 1.0


def test_samples_without_names_and_a_single_system_have_none():
    assert soft_pairwise_accuracy([JudgedGroup("de-en", [1.0, 2.0], [1.0, 2.0])] * 3) is None
    assert soft_pairwise_accuracy([JudgedGroup("de-en", [1.0], [1.0], systems=["a"])] * 3) is None


@given(st.lists(NAMED, max_size=6))
def test_with_one_judgement_the_samples_accuracy_is_the_one_with_ties_counted_half(groups):
    found, expected = soft_sample_accuracy(groups, n_resamples=20), score_ranking(groups, ties="half", n_resamples=20)
    assert found == expected.accuracy


def test_with_several_judgements_a_pair_counts_by_their_share():
    orders = [[1.0, 2.0, None], [2.0, 1.0, None], [3.0, 3.0, None], [0.0, 9.0, None]]
    group = JudgedGroup("de-en", [1.0, 2.0, 3.0], [1.5, 3.75, None], orders)
    assert soft_sample_accuracy([group]).mean == pytest.approx((1 + 0 + 0.5 + 1) / 4)
