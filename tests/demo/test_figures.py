"""Curves are smoothed without being moved."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.demo.pictures import moving_average

VALUES = st.lists(st.floats(-1e3, 1e3), max_size=60)


@given(VALUES, st.integers(-1, 1))
def test_a_window_of_one_step_changes_nothing(values, window):
    assert moving_average(values, window) == values


@given(st.integers(0, 60), st.floats(-1e3, 1e3), st.floats(-10, 10), st.integers(2, 20))
def test_a_straight_line_stays_where_it_is_away_from_its_ends(n_steps, start, slope, window):
    line = [start + slope * step for step in range(n_steps)]
    smooth, half = moving_average(line, window), window // 2
    assert len(smooth) == n_steps
    assert smooth[half : n_steps - half] == pytest.approx(line[half : n_steps - half], abs=1e-6)


@given(VALUES, st.integers(0, 20))
def test_no_average_leaves_the_range_of_the_values(values, window):
    smooth = moving_average(values, window)
    assert all(min(values) - 1e-9 <= value <= max(values) + 1e-9 for value in smooth)
