"""Curves are smoothed without being moved, and bars show every number that there is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from grrm.demo import report
from grrm.demo.pictures import LIGHT, moving_average
from grrm.demo.results import INTERVALS, Results
from grrm.demo.settings import CONSENSUS, RANKERS, DemoSettings

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


@pytest.mark.parametrize(("correlation", "lowest"), [(None, 0.0), (-0.4, -0.4)])
def test_a_judge_that_ranks_the_wrong_way_or_not_at_all_is_in_the_picture(monkeypatch, correlation, lowest):
    axes = Figure().add_subplot()
    monkeypatch.setattr(report, "draw_picture", lambda name, title, caption, draw: draw(axes, LIGHT))
    interval = None if correlation is None else {"mean": correlation, "low": -0.5, "high": -0.3}
    measured = {key: {"mean": 0.7, "low": 0.6, "high": 0.8} for key in INTERVALS} | {"correlation": interval}
    measured |= {"tied": 0.0, "milliseconds_a_group": 1.0}
    rankings = {1: {key: {"dev": measured, "heldout": measured} for key in (*RANKERS, CONSENSUS)}}
    report._judges(Results(DemoSettings(), {}, {}, {}, rankings, {}))
    assert axes.get_ylim()[0] <= lowest
    assert min(bar.get_height() for bar in axes.patches) == (correlation or 0.7)
