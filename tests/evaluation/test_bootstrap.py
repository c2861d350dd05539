"""Bootstrap intervals: they hold the mean, have the width they should, and resample whole rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.evaluation.bootstrap import bootstrap_interval, bootstrap_of_sums, bootstrap_ratio

ROWS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=15)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20), st.integers(0, 5))
def test_bootstrap_interval_lies_within_the_values_and_holds_the_mean(values, seed):
    interval = bootstrap_interval(values, n_resamples=50, seed=seed)
    assert min(values) - 1e-9 <= interval.low <= interval.high <= max(values) + 1e-9
    assert interval.mean == pytest.approx(sum(values) / len(values))
    assert interval == bootstrap_interval(values, n_resamples=50, seed=seed)


def test_bootstrap_interval_has_the_width_of_the_standard_error():
    values = [0.0, 100.0] * 200
    interval = bootstrap_interval(values, n_resamples=2000)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * 50 / 400**0.5, rel=0.1)
    with pytest.raises(ValueError, match="empty"):
        bootstrap_interval([])


@given(ROWS, st.integers(0, 3))
def test_a_ratio_is_of_the_sums_and_lies_between_the_rows(rows, seed):
    tops, bottoms = zip(*rows, strict=True)
    interval = bootstrap_ratio(tops, bottoms, n_resamples=50, seed=seed)
    ratios = [top / bottom for top, bottom in rows]
    assert interval.mean == pytest.approx(sum(tops) / sum(bottoms))
    assert min(ratios) - 1e-9 <= interval.low <= interval.high <= max(ratios) + 1e-9


@given(ROWS, st.integers(0, 3))
def test_a_statistic_of_sums_is_resampled_like_a_ratio(rows, seed):
    tops, bottoms = zip(*rows, strict=True)
    square = bootstrap_of_sums(lambda top, bottom: (top / bottom) ** 2, tops, bottoms, n_resamples=50, seed=seed)
    assert square.mean == pytest.approx((sum(tops) / sum(bottoms)) ** 2)
    one_by_one = bootstrap_of_sums(np.divide, tops, bottoms, n_resamples=50, seed=seed)
    assert one_by_one == bootstrap_ratio(tops, bottoms, n_resamples=50, seed=seed)


def test_a_statistic_has_no_interval_where_it_is_not_defined():
    def ratio(top, bottom):
        with np.errstate(invalid="ignore", divide="ignore"):
            return top / bottom

    assert bootstrap_of_sums(ratio, [0.0, 0.0], [0.0, 0.0]) is None
    some = bootstrap_of_sums(ratio, [1.0, 0.0], [1.0, 0.0])  # a quarter of the resamples has no denominator
    assert (some.low, some.mean, some.high) == (1.0, 1.0, 1.0)


def test_rows_that_belong_together_are_drawn_together():
    independent = bootstrap_ratio([0.0, 1.0] * 100, [1.0] * 200)
    in_groups = bootstrap_ratio([0.0, 20.0] * 5, [20.0] * 10)
    assert in_groups.mean == independent.mean
    assert in_groups.high - in_groups.low > 2 * (independent.high - independent.low)


@pytest.mark.parametrize(("tops", "bottoms"), [([1.0], [0.0]), ([1.0, 2.0], [1.0])])
def test_a_row_that_counts_for_nothing_is_refused(tops, bottoms):
    with pytest.raises(ValueError, match="denominator above zero"):
        bootstrap_ratio(tops, bottoms)
    with pytest.raises(ValueError, match="not finite"):
        bootstrap_ratio([1.0, float("nan")], [1.0, 1.0])
