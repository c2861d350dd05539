"""The report's curves: PNG files for everybody, and the same pictures as bytes in a light and a dark version."""

from __future__ import annotations

import io
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from grrm.demo.results import Results, mean_curve, policy_figures
from grrm.demo.settings import ALGORITHMS, SFT, TITLES


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of one version of a figure; `series` are told apart by line style too."""

    background: str
    ink: str
    grid: str
    series: tuple[str, ...]


LIGHT = Theme("#ffffff", "#2b3038", "#e3e6ea", ("#2f6fb5", "#c8641c", "#3d8b57", "#8a5aa8"))
DARK = Theme("#1b1f26", "#d5dae1", "#343b45", ("#7db3ee", "#f0a060", "#7fca98", "#c3a0dd"))
_LOGARITHMIC = ("logprob_gap",)  # its mean and its maximum lie orders of magnitude apart
_STYLES = ("-", "--", "-.", ":")
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


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a chart: a run, the metric's key, and the name in the legend."""

    run: str
    key: str
    label: str


def _per_algorithm(key: str) -> list[Curve]:
    return [Curve(algorithm, key, TITLES[algorithm]) for algorithm in ALGORITHMS]


def _pairs(*keys_and_words: tuple[str, str]) -> list[Curve]:
    return [Curve(run, key, f"{TITLES[run]}, {word}") for run in ALGORITHMS for key, word in keys_and_words]


CHARTS: tuple[tuple[str, str, str, str, list[Curve]], ...] = (
    (
        "reward",
        "Reward",
        "mean reward of the samples",
        "What RL optimises, on training prompts.",
        _per_algorithm("reward_mean"),
    ),
    (
        "length",
        "Response length",
        "tokens",
        "Mean length of the samples; a collapse or a run-away shows here.",
        _per_algorithm("response_length_mean"),
    ),
    (
        "kl",
        "KL to the SFT policy",
        "nats per token",
        "How far the policy has moved from where it started.",
        _per_algorithm("kl"),
    ),
    ("entropy", "Entropy", "nats per token", "How undecided the policy still is.", _per_algorithm("entropy")),
    (
        "groups",
        "Groups that teach nothing",
        "fraction",
        "Groups whose samples all earned the same, and samples without a score.",
        _pairs(("frac_zero_variance", "zero variance"), ("frac_unscored", "unscored")),
    ),
    (
        "logprob_gap",
        "Trainer against sampler",
        "nats",
        "Difference between the log-probabilities of the trainer and of the engine that drew the tokens.",
        _pairs(("logprob_gap_mean", "mean"), ("logprob_gap_max", "max")),
    ),
    (
        "loss",
        "RL loss",
        "loss",
        "A policy-gradient loss need not fall; a jump is what to look for.",
        _per_algorithm("loss"),
    ),
    ("sft_loss", "SFT loss", "nats per token", "The cold start.", [Curve(SFT, "loss", TITLES[SFT])]),
)


def draw_all(results: Results) -> list[Picture]:
    """Every figure of the report, the held-out scores first; a figure without data carries a note instead."""
    pictures = [_bars(results)]
    for name, title, unit, caption, curves in CHARTS:
        pictures.append(_chart(results, name, title, unit, caption, curves))
    return pictures


def _bars(results: Results) -> Picture:
    sampled, greedy = policy_figures(results, "sampled", "chrf"), policy_figures(results, "greedy", "chrf")
    title, caption = "Held-out chrF", "Corpus chrF on held-out text."
    if results.settings.n_seeds > 1:
        caption = "Corpus chrF on held-out text; error bars are the standard deviation over seeds."
    if not sampled:
        return Picture("chrf", title, caption, None, None, "not evaluated")

    def draw(axes: Axes, theme: Theme) -> None:
        for offset, (figures, label) in enumerate(((sampled, "sampled, temperature 1"), (greedy, "greedy"))):
            places = [position + (offset - 0.5) * 0.38 for position in range(len(figures))]
            means = [figure["mean"] for figure in figures.values()]
            spreads = [figure["sd"] or 0.0 for figure in figures.values()]
            several = any(figure["sd"] is not None for figure in figures.values())
            options: dict[str, Any] = {"yerr": spreads, "capsize": 3, "ecolor": theme.ink} if several else {}
            axes.bar(places, means, width=0.36, color=theme.series[offset], label=label, **options)
            for place, mean, spread in zip(places, means, spreads, strict=True):
                axes.annotate(
                    f"{mean:.1f}",
                    (place, mean + spread),
                    (0, 4 if several else 2),
                    textcoords="offset points",
                    ha="center",
                    fontsize=8,
                )
        axes.set_xticks(range(len(sampled)), [TITLES[policy] for policy in sampled])
        axes.set_ylim(0, 100)
        axes.set_ylabel("chrF")
        axes.grid(axis="x", visible=False)

    return _picture("chrf", title, caption, draw)


def _chart(results: Results, name: str, title: str, unit: str, caption: str, curves: Sequence[Curve]) -> Picture:
    data = [(curve, mean_curve(results.metrics[curve.run], curve.key)) for curve in curves]
    drawn = [(curve, points) for curve, points in data if points]
    missing = [curve.label for curve, points in data if not points]
    note = f"not logged: {', '.join(missing)}" if missing else None
    if not drawn:
        return Picture(name, title, caption, None, None, note)

    def draw(axes: Axes, theme: Theme) -> None:
        for index, (curve, points) in enumerate(drawn):
            _draw_curve(axes, points, curve.label, theme.series[index % 4], _STYLES[index % 4])
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if name in _LOGARITHMIC:
            axes.set_yscale("log", nonpositive="mask")
        axes.set_ylabel(unit)

    return _picture(name, title, caption, draw, note)


def _draw_curve(axes: Axes, points: Mapping[int, Sequence[float]], label: str, colour: str, style: str) -> None:
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


def _picture(
    name: str, title: str, caption: str, draw: Callable[[Axes, Theme], None], note: str | None = None
) -> Picture:
    light, dark = (_render(draw, theme) for theme in (LIGHT, DARK))
    return Picture(name, title, caption, light, dark, note)


def _render(draw: Callable[[Axes, Theme], None], theme: Theme) -> bytes:
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
