"""One bar per name, with its confidence interval, as a PNG file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from grrm.data.atomic import atomic_path
from grrm.evaluation.bootstrap import Interval

_BAR, _INK, _GRID = "#2f6fb5", "#2b3038", "#e3e6ea"
_MISSING = "no data"


def write_bar_chart(
    path: Path,
    title: str,
    axis: str,
    bars: Mapping[str, Interval | None],
    *,
    limits: tuple[float, float],
    baseline: float | None = None,
) -> None:
    """Draw the bars from top to bottom and write them to `path` in one step; None is a labelled gap, not a bar of 0.

    `baseline` is marked with a dashed line, for what chance would reach. Raises UserError when the path cannot be
    written.
    """
    figure = Figure(figsize=(7, 1.3 + 0.38 * max(len(bars), 1)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    span = limits[1] - limits[0]
    for row, interval in enumerate(bars.values()):
        if interval is None:
            axes.text(limits[0] + 0.01 * span, row, _MISSING, va="center", color=_INK, style="italic")
            continue
        errors = [[max(interval.mean - interval.low, 0.0)], [max(interval.high - interval.mean, 0.0)]]
        axes.barh(row, interval.mean - limits[0], left=limits[0], height=0.62, color=_BAR)
        axes.errorbar(interval.mean, row, xerr=errors, color=_INK, capsize=3, linewidth=1.2)
    if baseline is not None:
        axes.axvline(baseline, color=_INK, linestyle="--", linewidth=1)
    axes.set_yticks(range(len(bars)), list(bars))
    axes.set(title=title, xlabel=axis, xlim=limits, ylim=(len(bars) - 0.5, -0.5))
    axes.grid(axis="x", color=_GRID)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
