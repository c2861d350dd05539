"""The demo's report: summary.json for scripts, curves as PNG files, and one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from grrm.data.atomic import write_bytes
from grrm.demo.pictures import STYLES, Picture, Theme, bar_row, draw_curve, draw_picture, inline
from grrm.demo.results import Results, load_results, mean_curve, policy_figures, ranking_figures, show_figure, summarise
from grrm.demo.samples import pick_groups, pick_samples
from grrm.demo.settings import GRPO_RANKER, RANKERS, SFT, TITLES, DemoSettings
from grrm.demo.stages import write_json
from grrm.tracking.report.page import page_environment

_LOGARITHMIC = ("logprob_gap",)  # its mean and its maximum lie orders of magnitude apart


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture of metrics over steps: `keys` are what is curves for every run, each with a word for the legend.

    `runs` None are those of reinforcement learning.
    """

    name: str
    title: str
    unit: str
    caption: str
    keys: tuple[tuple[str, str], ...]
    runs: tuple[str, ...] | None = None


CHARTS: tuple[Chart, ...] = (
    Chart(
        "reward",
        "Reward",
        "mean reward of the samples",
        "What RL optimises, on training prompts. Scales differ: a ranker scores around the middle of each group.",
        (("reward_mean", ""),),
    ),
    Chart(
        "length",
        "Response length",
        "tokens",
        "Mean length of the samples; a collapse or a run-away shows here.",
        (("response_length_mean", ""),),
    ),
    Chart(
        "kl",
        "KL to the SFT policy",
        "nats per token",
        "How far the policy has moved from where it started.",
        (("kl", ""),),
    ),
    Chart(
        "watched",
        "Held-out chrF on the way",
        "corpus chrF",
        "Greedy translations of development rows while RL goes on.",
        (("eval_chrf_greedy", ""),),
    ),
    Chart(
        "watched_sampled",
        "The same, sampled",
        "corpus chrF",
        "Samples at temperature 1 of the same rows.",
        (("eval_chrf", ""),),
    ),
    Chart("entropy", "Entropy", "nats per token", "How undecided the policy still is.", (("entropy", ""),)),
    Chart(
        "groups",
        "Groups that teach nothing",
        "fraction",
        "Groups whose samples all earned the same, and samples without a score.",
        (("frac_zero_variance", "zero variance"), ("frac_unscored", "unscored")),
    ),
    Chart(
        "logprob_gap",
        "Trainer against sampler",
        "nats",
        "Difference between the log-probabilities of the trainer and of the engine that drew the tokens.",
        (("logprob_gap_mean", "mean"), ("logprob_gap_max", "max")),
    ),
    Chart(
        "loss",
        "RL loss",
        "loss",
        "A policy-gradient loss need not fall; a jump is what to look for.",
        (("loss", ""),),
    ),
    Chart("sft_loss", "SFT loss", "nats per token", "The cold start.", (("loss", ""),), runs=(SFT,)),
)
RANKER_CHART = Chart(
    "ranker",
    "How the rankers learn",
    "correlation within a group",
    "Scores and gold on the development rows, both from their group's mean.",
    (("eval_correlation", ""),),
    runs=tuple(RANKERS),
)


def draw_all(results: Results) -> list[Picture]:
    """Every figure of the report, the held-out scores first; a figure without data carries a note instead."""
    charts = [RANKER_CHART, *CHARTS] if GRPO_RANKER in results.settings.rl_runs else CHARTS
    judged = [_judges(results)] if results.rankings else []
    return [_bars(results), *judged, *(_chart(results, chart) for chart in charts)]


def _bars(results: Results) -> Picture:
    sampled, greedy = policy_figures(results, "sampled", "chrf"), policy_figures(results, "greedy", "chrf")
    title, caption = "Held-out chrF", "Corpus chrF on held-out text."
    if results.settings.n_seeds > 1:
        caption = "Corpus chrF on held-out text; error bars are the standard deviation over seeds."
    if not sampled:
        return Picture("chrf", title, caption, None, None, "not evaluated")

    def draw(axes: Axes, theme: Theme) -> None:
        for offset, (figures, label) in enumerate(((sampled, "sampled, temperature 1"), (greedy, "greedy"))):
            positions = [position + (offset - 0.5) * 0.38 for position in range(len(figures))]
            bar_row(axes, theme, offset, positions, list(figures.values()), label)
        axes.set_xticks(range(len(sampled)), [TITLES[policy].replace(", ", ",\n") for policy in sampled])
        axes.set_ylim(0, 100)
        axes.set_ylabel("chrF")
        axes.grid(axis="x", visible=False)

    return draw_picture("chrf", title, caption, draw)


def _judges(results: Results) -> Picture:
    figures = ranking_figures(results)

    def draw(axes: Axes, theme: Theme) -> None:
        for offset, (key, label) in enumerate((("accuracy", "pairs in order"), ("correlation", "correlation"))):
            heldout = [of_sets["heldout"][key] for of_sets in figures.values()]
            positions = [position + (offset - 0.5) * 0.38 for position in range(len(heldout))]
            bar_row(axes, theme, offset, positions, heldout, label, digits=2)
        axes.set_xticks(range(len(figures)), [TITLES[name].replace(", ", ",\n") for name in figures])
        axes.set_ylim(min(0.0, axes.get_ylim()[0]), 1)  # a judge may rank the wrong way round
        axes.grid(axis="x", visible=False)

    caption = "Pairs of samples that a judge orders as chrF against the reference does; correlation within a group."
    return draw_picture("ranking", "What the judges see", caption, draw)


def _chart(results: Results, chart: Chart) -> Picture:
    """A colour for each run, a line style for each key, or for each run where there is one key."""
    runs, alone = results.settings.rl_runs if chart.runs is None else chart.runs, len(chart.keys) == 1
    curves, missing = [], []
    for colour, run in enumerate(runs):
        for style, (key, word) in enumerate(chart.keys):
            label, points = f"{TITLES[run]}, {word}" if word else TITLES[run], mean_curve(results.metrics[run], key)
            if points:
                curves.append((points, label, colour % 4, STYLES[(colour if alone else style) % 4]))
            else:
                missing.append(label)
    note = f"not logged: {', '.join(missing)}" if missing else None
    if not curves:
        return Picture(chart.name, chart.title, chart.caption, None, None, note)

    def draw(axes: Axes, theme: Theme) -> None:
        for points, label, colour, style in curves:
            draw_curve(axes, points, label, theme.series[colour], style)
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if chart.name in _LOGARITHMIC:
            axes.set_yscale("log", nonpositive="mask")
        axes.set_ylabel(chart.unit)

    return draw_picture(chart.name, chart.title, chart.caption, draw, note)


SUMMARY, PAGE, FIGURES = "summary.json", "report.html", "figures"
_TABLE = (
    ("chrF, sampled", "chrf", 1.0, 1),
    ("chrF, greedy", "chrf_greedy", 1.0, 1),
    ("chrF per sentence, sampled", "chrf_sentence", 1.0, 1),
    ("chrF per sentence, greedy", "chrf_sentence_greedy", 1.0, 1),
    ("exact, sampled (%)", "exact_match", 100.0, 1),
    ("exact, greedy (%)", "exact_match_greedy", 100.0, 1),
    ("tokens per sample", "response_length", 1.0, 1),
    ("KL to SFT, nats per token", "kl_to_sft", 1.0, 4),
    ("unparsable (%)", "unparsable", 100.0, 2),
)


def write_report(out: Path, settings: DemoSettings, seconds: Mapping[str, float]) -> dict[str, Any]:
    """Write `summary.json`, `report.html` and `figures/*.png` into `out` from what the stages left.

    Returns the summary. Absent runs and metrics are shown as not run or not logged.
    Raises UserError on damaged metrics.
    """
    results = load_results(out, settings, seconds)
    summary = summarise(results)
    pictures = draw_all(results)
    for picture in pictures:
        if picture.light_png is not None:
            write_bytes(out / FIGURES / f"{picture.name}.png", picture.light_png)
    write_bytes(out / PAGE, render_page(out, results, summary, pictures).encode())
    write_json(out / SUMMARY, summary)
    return summary


def render_page(out: Path, results: Results, summary: Mapping[str, Any], pictures: list[Picture]) -> str:
    """The page as text."""
    environment = page_environment(Path(__file__).parent)
    environment.filters["figure"] = show_figure
    return environment.get_template("report.html.jinja").render(
        summary=summary,
        titles=TITLES,
        policies=list(summary["chrf"]),
        rows=[(label, summary[key], scale, digits) for label, key, scale, digits in _TABLE],
        rankings=[(TITLES[name], of_sets) for name, of_sets in summary["ranking"].items()],
        chosen=[(seed, TITLES[name]) for seed, name in summary["chosen_ranker"].items()],
        verdicts=[(TITLES[name], judged) for name, judged in summary["learned"].items()],
        not_judged=[TITLES[name] for name in results.settings.rl_runs if name not in summary["learned"]],
        pictures=[(picture, inline(picture.light_png), inline(picture.dark_png)) for picture in pictures],
        samples=pick_samples(results),
        groups=pick_groups(out, results),
        total_s=sum(summary["seconds"].values()),
    )
