"""The curves of a run report: which metrics are drawn together, for one run or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from grrm.tracking.report.pictures import STYLES, Picture, Theme, draw_curve, draw_picture

Metrics = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class RunChart:
    """Metrics on one pair of axes; what none of the runs logged is left out. Titles in English and Chinese."""

    name: str
    title: str
    title_zh: str
    keys: tuple[str, ...]
    is_logarithmic: bool = False


CHARTS = (
    RunChart("reward", "Reward of the samples", "样本奖励", ("reward_mean",)),
    RunChart("score", "Score by the judge", "评判得分", ("score_mean",)),
    RunChart("eval_reward", "Held-out reward", "留出集奖励", ("eval_reward", "eval_reward_greedy")),
    RunChart("eval_chrf", "Held-out chrF", "留出集 chrF", ("eval_chrf", "eval_chrf_greedy")),
    RunChart("eval_bleu", "Held-out BLEU", "留出集 BLEU", ("eval_bleu", "eval_bleu_greedy")),
    RunChart("eval_judge", "Held-out pairs", "留出集排序", ("eval_pair_accuracy", "eval_correlation")),
    RunChart("loss", "Loss", "损失", ("loss", "eval_loss")),
    RunChart("kl", "KL to the starting policy", "与初始策略的 KL", ("kl",)),
    RunChart("entropy", "Entropy", "熵", ("entropy",)),
    RunChart("length", "Response length, tokens", "回答长度（词元）", ("response_length_mean",)),
    RunChart("signal", "Groups that teach nothing", "无信号的组", ("frac_zero_variance", "frac_unscored")),
    RunChart("copies", "Copies within groups", "组内重复", ("frac_duplicate",)),
    RunChart("clip", "Clipped ratios", "被裁剪的比率", ("pg_clipfrac",)),
    RunChart("critic", "Variance that the critic explains", "critic 解释的方差", ("explained_variance",)),
    RunChart("gap", "Trainer against sampler", "训练与采样的差异", ("logprob_gap_mean", "logprob_gap_max"), True),
    RunChart(
        "seconds",
        "Seconds of a step",
        "每步耗时（秒）",
        ("seconds_rollout", "seconds_judge_waiting", "seconds_logprob", "seconds_update"),
    ),
)


def draw_charts(runs: Mapping[str, Metrics]) -> list[tuple[RunChart, Picture]]:
    """A picture for every chart that some run has numbers for; a colour for each run, a line style for each metric."""
    found = []
    for chart in (*CHARTS, *_part_charts(runs)):
        curves = [
            (name, key, colour, style, points)
            for colour, (name, metrics) in enumerate(runs.items())
            for style, key in enumerate(chart.keys)
            if (points := _points(metrics, key))
        ]
        if curves:
            found.append((chart, draw_picture(chart.name, chart.title, "", _drawing(chart, curves, len(runs) > 1))))
    return found


def status_chart(metrics: Metrics) -> Picture | None:
    """The share of every status that carries no score over the steps, stacked; None where no sample was without."""
    keys = sorted({key for line in metrics for key in line if key.startswith("status/")})
    keys = [key for key in keys if key not in ("status/scored", "status/duplicate")]
    lines = [line for line in metrics if any(key.startswith("status/") for key in line)]
    if not keys or not lines:
        return None
    steps = [line["step"] for line in lines]
    shares = [[line.get(key) or 0.0 for line in lines] for key in keys]

    def draw(axes: Axes, theme: Theme) -> None:
        colours = [theme.series[i % len(theme.series)] for i in range(len(keys))]
        labels = [key.removeprefix("status/") for key in keys]
        if len(steps) == 1:
            axes.bar(labels, [column[0] for column in shares], color=colours)
        else:
            axes.stackplot(steps, shares, labels=labels, colors=colours, alpha=0.8)
            axes.set_xlabel("step")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylim(0, 1.1 * max(max(sum(line) for line in zip(*shares, strict=True)), 0.01))
        axes.set_ylabel(f"share of samples: {labels[0]}" if len(labels) == 1 else "share of samples")

    return draw_picture("status", "", "", draw)


def _part_charts(runs: Mapping[str, Metrics]) -> list[RunChart]:
    """One chart with the scores of a mixture's judges."""
    keys = sorted(
        {
            key
            for metrics in runs.values()
            for line in metrics
            for key in line
            if key.startswith("part/") and key.endswith("/score_mean")
        }
    )
    return [RunChart("parts", "Scores by the judges of the mixture", "各评判的得分", tuple(keys))] if keys else []


def _points(metrics: Metrics, key: str) -> dict[int, list[float]]:
    return {
        line["step"]: [float(line[key])]
        for line in metrics
        if isinstance(line.get(key), (int, float)) and not isinstance(line.get(key), bool)
    }


def _drawing(
    chart: RunChart, curves: Sequence[tuple[str, str, int, int, dict[int, list[float]]]], several: bool
) -> Any:
    def draw(axes: Axes, theme: Theme) -> None:
        for name, key, colour, style, points in curves:
            label = f"{name}: {key}" if several and len(chart.keys) > 1 else name if several else key
            colour = colour if several else style
            draw_curve(axes, points, label, theme.series[colour % len(theme.series)], STYLES[style % len(STYLES)])
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if chart.is_logarithmic:
            axes.set_yscale("log", nonpositive="mask")
        if len(curves) == 1:
            axes.set_ylabel(curves[0][1])

    return draw
