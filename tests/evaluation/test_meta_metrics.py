"""Meta-metrics against slow but obvious formulas, and the cases in which they are not defined."""

from __future__ import annotations

import math
import time
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.evaluation.meta_metrics import (
    correlation,
    kendall_tau_b,
    order_consistency,
    score_meta,
    tie_calibrated_accuracy,
)
from grrm.evaluation.ranking import JudgedGroup
from grrm.judges.permute import kendall_tau_b as tau_b_of_one_group

SCORE = st.one_of(st.none(), st.integers(0, 4).map(float), st.floats(0, 4))
ROWS = st.lists(st.tuples(SCORE, SCORE), max_size=5)


def judged_group(rows, **more):
    return JudgedGroup("de-en", [gold for gold, _ in rows], [judged for _, judged in rows], **more)


GROUPS = st.lists(ROWS.map(judged_group), max_size=5)
IN_ORDERS = st.integers(0, 5).flatmap(
    lambda size: st.lists(st.lists(SCORE, min_size=size, max_size=size), max_size=4).map(
        lambda orders: JudgedGroup("de-en", [1.0] * size, [None] * size, orders)
    )
)


def scored(group):
    """(gold, judged) of the candidates that have both."""
    return [pair for pair in zip(group.gold, group.judged, strict=True) if None not in pair]


def scored_pairs(groups):
    return [(a, b) for group in groups for a, b in combinations(scored(group), 2)]


def accuracy_at(epsilon, pairs):
    right = 0
    for (gold_a, judged_a), (gold_b, judged_b) in pairs:
        if abs(judged_a - judged_b) <= epsilon:
            right += gold_a == gold_b
        else:
            right += gold_a != gold_b and (gold_a > gold_b) == (judged_a > judged_b)
    return right / len(pairs)


def assert_same(interval, expected):
    if expected is None:
        assert interval is None
    else:
        assert interval.mean == pytest.approx(expected, abs=1e-9)


@given(GROUPS)
def test_tie_calibrated_accuracy_is_the_best_of_all_thresholds(groups):
    pairs = scored_pairs(groups)
    interval, threshold = tie_calibrated_accuracy(groups, n_resamples=20)
    if not pairs:
        assert (interval, threshold) == (None, None)
        return
    thresholds = sorted({0.0, *(abs(a[1] - b[1]) for a, b in pairs)})
    accuracies = [accuracy_at(epsilon, pairs) for epsilon in thresholds]
    assert interval.mean == pytest.approx(max(accuracies))
    assert threshold == thresholds[int(np.argmax(accuracies))]
    assert 0 <= interval.low <= interval.high <= 1


def test_a_fine_judge_is_not_punished_for_the_ties_of_coarse_gold():
    gold, fine = [1.0, 1.0, 5.0, 5.0], [1.0, 1.1, 5.0, 5.2]
    interval, threshold = tie_calibrated_accuracy([JudgedGroup("de-en", gold, fine)] * 3)
    assert (interval.mean, threshold) == (1.0, pytest.approx(0.2))


@given(GROUPS)
def test_tau_b_is_the_mean_of_what_comparing_all_pairs_gives(groups):
    taus = [tau_b_of_one_group(*zip(*scored(group), strict=True)) for group in groups if len(scored(group)) > 1]
    defined = [tau for tau in taus if tau is not None]
    assert_same(kendall_tau_b(groups, n_resamples=20), sum(defined) / len(defined) if defined else None)


def test_tau_b_counts_ties_on_either_side():
    # pairs: 6; C = 4, D = 0, gold ties one pair, the judge another one: 4 / sqrt(5 * 5)
    interval = kendall_tau_b([JudgedGroup("de-en", [1, 1, 2, 3], [1, 2, 3, 3])])
    assert interval.mean == pytest.approx(0.8)


@given(GROUPS)
def test_correlation_is_numpys_of_differences_from_the_groups_mean(groups):
    rows = [np.array(scored(group)) - np.mean(scored(group), axis=0) for group in groups if scored(group)]
    found = correlation(groups, n_resamples=20)
    vary = [any(len({pair[k] for pair in scored(group)}) > 1 for group in groups) for k in range(2)]
    if not all(vary):
        assert found is None
        return
    gold, judged = np.concatenate(rows).T
    if min(np.abs(gold).max(), np.abs(judged).max()) > 1e-6:  # below, rounding decides
        assert_same(found, np.corrcoef(gold, judged)[0, 1])


def test_correlation_ignores_what_differs_between_groups_and_the_scale():
    groups = [JudgedGroup("de-en", [k, k + 1.0, k + 2.0], [-9.0 * k, 7 - 9.0 * k, 14 - 9.0 * k]) for k in range(4)]
    interval = correlation(groups)
    assert (interval.low, interval.mean, interval.high) == (pytest.approx(1), pytest.approx(1), pytest.approx(1))


@pytest.mark.parametrize("scores", [[0.1, 0.1, 0.1], [None, 0.3, None]])
def test_scores_that_do_not_vary_have_neither_correlation_nor_tau(scores):
    groups = [JudgedGroup("de-en", [1.0, 2.0, 3.0], scores)] * 4
    assert (correlation(groups), kendall_tau_b(groups)) == (None, None)
    swapped = [JudgedGroup("de-en", scores, [1.0, 2.0, 3.0])] * 4
    assert (correlation(swapped), kendall_tau_b(swapped)) == (None, None)


@given(st.lists(IN_ORDERS, max_size=4))
def test_consistency_is_what_comparing_every_two_orders_gives(groups):
    same = []
    for group in groups:
        for one, other in combinations(group.orders, 2):
            for i, k in combinations(range(len(group.gold)), 2):
                if None not in (one[i], one[k], other[i], other[k]):
                    same.append((one[i] > one[k]) - (one[i] < one[k]) == (other[i] > other[k]) - (other[i] < other[k]))
    assert_same(order_consistency(groups, n_resamples=20), sum(same) / len(same) if same else None)


@given(GROUPS, st.randoms())
def test_the_order_of_groups_and_candidates_changes_nothing(groups, random):
    shuffled = []
    for group in random.sample(groups, len(groups)):
        rows = list(zip(group.gold, group.judged, strict=True))
        shuffled.append(judged_group(random.sample(rows, len(rows))))
    before, after = (score_meta(some, n_resamples=10) for some in (groups, shuffled))
    for name in ("correlation", "kendall_tau_b", "tie_calibrated_accuracy", "soft_sample_accuracy"):
        one, other = getattr(before, name), getattr(after, name)
        if one is not None and other is not None:  # a sum of 1e-300 may be rounded to no variance
            assert one.mean == pytest.approx(other.mean, abs=1e-6)


def test_numbers_as_large_as_a_float_can_be_give_no_warning_and_nothing_that_is_not_finite(recwarn):
    groups = [JudgedGroup("de-en", [1.0, 2.0, 2.0], [-1.7e308, 1.7e308, 0.0], systems=["a", "b", "c"])] * 2
    found = score_meta(groups, n_resamples=10)
    assert math.isfinite(found.tie_threshold)
    assert found.correlation.mean == pytest.approx(correlation([JudgedGroup("de-en", [1, 2, 2], [-1, 1, 0])]).mean)
    assert found.kendall_tau_b.mean == pytest.approx(2 / math.sqrt(6))
    assert [str(warning.message) for warning in recwarn] == []


def test_nothing_to_score_is_none_everywhere():
    empty = score_meta([])
    assert {getattr(empty, name) for name in empty.__slots__} == {None}
    unscored = score_meta([JudgedGroup("de-en", [1.0, 2.0], [None, None])])
    assert {getattr(unscored, name) for name in unscored.__slots__} == {None}


def test_tokens_are_the_mean_of_the_groups_that_tell_them():
    groups = [JudgedGroup("de-en", [], [], tokens=count) for count in (10, None, 20)]
    assert score_meta(groups).tokens.mean == 15


def test_two_thousand_groups_of_sixteen_take_seconds():
    draw = np.random.default_rng(0)
    gold = draw.normal(size=(2000, 16))
    judged = gold + draw.normal(size=gold.shape)
    groups = [JudgedGroup("de-en", list(a), list(b)) for a, b in zip(gold, judged, strict=True)]
    start = time.process_time()
    found = score_meta(groups)
    assert time.process_time() - start < 20
    assert found.correlation.mean == pytest.approx(math.sqrt(0.5), abs=0.02)
