"""Figures of reports: bars, curves over steps and whatever else is drawn, as PNG in a light and a dark version."""

from __future__ import annotations

import base64
import io
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of one version of a figure; `series` are told apart by line style too."""

    background: str
    ink: str
    grid: str
    series: tuple[str, ...]


LIGHT = Theme("#ffffff", "#2b3038", "#e3e6ea", ("#2f6fb5", "#c8641c", "#3d8b57", "#8a5aa8"))
DARK = Theme("#1b1f26", "#d5dae1", "#343b45", ("#7db3ee", "#f0a060", "#7fca98", "#c3a0dd"))
STYLES = ("-", "--", "-.", ":")
Draw = Callable[[Axes, Theme], None]
_STEPS_PER_WINDOW = 20  # a curve is smoothed over a twentieth of its steps; single steps stay visible as a thin line


@dataclass(frozen=True, slots=True)
class Picture:
    """One figure: `png` files differ in colours only; `note` is None unless something could not be drawn."""

    name: str
    title: str
    caption: str
    light_png: bytes | None
    dark_png: bytes | None
    note: str | None = None


def bar_row(
    axes: Axes,
    theme: Theme,
    colour: int,
    positions: Sequence[float],
    figures: Sequence[Mapping[str, Any] | None],
    label: str,
    digits: int = 1,
) -> None:
    """Bars of `over_seeds` figures with their means at their ends, and error bars where there are several seeds.

    A figure that is not defined has no bar.
    """
    positions = [position for position, figure in zip(positions, figures, strict=True) if figure is not None]
    defined = [figure for figure in figures if figure is not None]
    means, spreads = [figure["mean"] for figure in defined], [figure["sd"] or 0.0 for figure in defined]
    several = any(figure["sd"] is not None for figure in defined)
    options: dict[str, Any] = {"yerr": spreads, "capsize": 3, "ecolor": theme.ink} if several else {}
    axes.bar(positions, means, width=0.36, color=theme.series[colour], label=label, **options)
    gap = 4 if several else 2
    for position, mean, spread in zip(positions, means, spreads, strict=True):
        is_below = mean < 0
        axes.annotate(
            f"{mean:.{digits}f}",
            (position, mean - spread if is_below else mean + spread),
            (0, -gap if is_below else gap),
            textcoords="offset points",
            ha="center",
            va="top" if is_below else "bottom",
            fontsize=8,
        )


def draw_curve(axes: Axes, points: Mapping[int, Sequence[float]], label: str, colour: str, style: str) -> None:
    """A smoothed curve through the means of `points`, the numbers of each step, with a band where there are several."""
    steps = list(points)
    means = [statistics.fmean(values) for values in points.values()]
    window = len(steps) // _STEPS_PER_WINDOW
    if window > 1:
        axes.plot(steps, means, "-", color=colour, linewidth=0.6, alpha=0.35)
    smooth = moving_average(means, window)
    axes.plot(steps, smooth, style, color=colour, label=label, linewidth=1.6, marker="o" if len(steps) == 1 else "")
    if any(len(values) > 1 for values in points.values()):
        spreads = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in points.values()]
        spreads = moving_average(spreads, window)
        low = [mean - spread for mean, spread in zip(smooth, spreads, strict=True)]
        high = [mean + spread for mean, spread in zip(smooth, spreads, strict=True)]
        axes.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """The mean of about `window` neighbours around each value, fewer at both ends; a window below 2 changes nothing."""
    half = max(window, 1) // 2
    return [statistics.fmean(values[max(0, i - half) : i + half + 1]) for i in range(len(values))]


def draw_picture(name: str, title: str, caption: str, draw: Draw, note: str | None = None) -> Picture:
    """The picture that `draw` makes of empty axes, in both themes."""
    return Picture(name, title, caption, render(draw, LIGHT), render(draw, DARK), note)


def render(draw: Draw, theme: Theme) -> bytes:
    """The PNG of what `draw` makes of empty axes."""
    figure = Figure(figsize=(5.6, 3.3), dpi=150, facecolor=theme.background, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(facecolor=theme.background)
    axes.set_axisbelow(True)
    axes.grid(color=theme.grid, linewidth=0.8)
    draw(axes, theme)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(theme.ink)
    axes.tick_params(colors=theme.ink, labelsize=9)
    for text in (axes.xaxis.label, axes.yaxis.label, *axes.texts):
        text.set_color(theme.ink)
    if len(axes.get_legend_handles_labels()[1]) > 1:
        figure.legend(loc="outside upper left", ncols=2, fontsize=9, frameon=False, labelcolor=theme.ink)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", facecolor=theme.background, metadata={"Software": None})
    return buffer.getvalue()


def inline(png: bytes | None) -> str | None:
    """The picture as an address that needs no file."""
    return None if png is None else "data:image/png;base64," + base64.b64encode(png).decode("ascii")
