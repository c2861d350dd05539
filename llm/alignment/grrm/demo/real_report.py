"""Tables and figures of `make real`, from its records."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from rich.table import Column, Table

from grrm.data.atomic import write_bytes
from grrm.demo.pictures import LIGHT, STYLES, Draw, Theme, draw_curve, render
from grrm.demo.real_plan import RealPlan
from grrm.demo.real_record import judges_record, policies_record, stale_results
from grrm.demo.real_settings import JUDGES, POLICIES
from grrm.demo.results import over_seeds
from grrm.demo.settings import SFT, title_of
from grrm.demo.stages import write_json

Record = Mapping[str, Any]
# Columns of a judge: what the record calls them, the factor, the digits.
JUDGE_COLUMNS = {
    "readable %": ("readable", 100, 1),
    "pairs": ("accuracy_ties_half", 1, 3),
    "all pairs": ("all_pairs", 1, 3),
    "above SQM": ("above_base", 1, 3),
    "hardest third": ("hardest_third", 1, 3),
    "correlation": ("correlation", 1, 3),
    "tied %": ("tied", 100, 1),
    "variance": ("score_variance", 1, 2),
    "orders agree": ("order_consistency", 1, 3),
    "tokens": ("tokens", 1, 0),
    "ms": ("milliseconds_a_group", 1, 0),
}
# What the record calls a gain and its interval, and the decoding of both.
_GAINS = {("gain", "interval"): "sampled", ("greedy_gain", "greedy_interval"): "greedy"}


def write_real(plan: RealPlan, halves: Sequence[str], seconds: Mapping[str, float]) -> list[Table | str]:
    """Write the halves' records and figures into the output folder; returns what to print of them."""
    shown: list[Table | str] = []
    makers: dict[str, tuple[Callable[..., dict[str, Any]], Any, Any]] = {
        JUDGES: (judges_record, judges_table, judges_figures),
        POLICIES: (policies_record, policies_table, policies_figures),
    }
    stale = stale_results(plan)  # reads the models, so once
    for half in halves:
        make, table, figures = makers[half]
        record = make(plan, seconds, stale)
        if not any(of_seed[half] for of_seed in record["seeds"].values()):
            continue
        path = plan.out / f"{half}.json"
        write_json(path, record)
        for name, draw in figures(record).items():
            write_bytes(plan.out / "figures" / f"real_{name}.png", render(draw, LIGHT))
        shown += [table(record), f"{half}: {path}"]
    return shown


def common(record: Record, half: str) -> list[str]:
    """The judges, or chosen policies, that every begun seed has; where stages ended early there are fewer."""
    first, *others = begun(record, half)
    chosen = (SFT, *record["settings"]["arms"]) if half == POLICIES else first
    return [name for name in first if name in chosen and all(name in other for other in others)]


def begun(record: Record, half: str) -> list[Record]:
    """The seeds' parts of a half, without those that have none of its judges or chosen policies; all where none has."""
    of_seeds = [of_seed[half] for of_seed in record["seeds"].values()]
    chosen = {*record["settings"]["arms"]} if half == POLICIES else {name for of_seed in of_seeds for name in of_seed}
    return [of_seed for of_seed in of_seeds if of_seed.keys() & chosen] or of_seeds


def figure(record: Record, judge: str, key: str) -> dict[str, Any] | None:
    """`over_seeds` of a judge's number, with its interval where there is one seed; None where it is not defined."""
    values = [of_seed[judge]["heldout"].get(key) for of_seed in begun(record, JUDGES)]
    if any(value is None for value in values):
        return None
    means = [value["mean"] if isinstance(value, Mapping) else value for value in values]
    interval = values[0] if len(values) == 1 and isinstance(values[0], Mapping) else None
    return over_seeds(means) | {"interval": interval and (interval["low"], interval["high"])}


def judges_table(record: Record) -> Table:
    """Tabulate how the judges rank held-out groups: one row a judge, intervals of one seed, spreads of several."""
    judges = common(record, JUDGES)
    n_groups = _shown(figure(record, judges[0], "n_groups"), 1, 0) if judges else "no"
    title = f"Judges on {n_groups} held-out groups, ties as half"
    table = Table(Column("judge", overflow="fold"), title=title, title_justify="left")
    for column in JUDGE_COLUMNS:
        table.add_column(column, justify="right", overflow="fold")  # an interval that is cut off would be none
    for judge in judges:
        cells = [
            _shown(figure(record, judge, key), factor, digits, with_spread=key in ("accuracy_ties_half", "above_base"))
            for key, factor, digits in JUDGE_COLUMNS.values()
        ]
        table.add_row(title_of(judge), *cells)
    return table


def _shown(
    number: Mapping[str, Any] | None, factor: float, digits: int, with_spread: bool = False, sign: str = ""
) -> str:
    if number is None:
        return "–"
    mean = f"{factor * number['mean']:{sign}.{digits}f}"
    if not with_spread:
        return mean
    if number["interval"]:
        low, high = number["interval"]
        return f"{mean} ({low:{sign}.{digits}f} to {high:{sign}.{digits}f})"
    return mean if number["sd"] is None else f"{mean} ± {number['sd']:.{digits}f}"


def policies_table(record: Record) -> Table:
    """Scores of the policies and what they gained over SFT."""
    columns = ("sampled", "gain", "greedy", "greedy gain", "BLEU, greedy", "similarity", "copied %", "tokens", "KL")
    table = Table("policy", title="Policies on held-out text: chrF", title_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    for run in common(record, POLICIES):
        seeds = [of_seed[run] for of_seed in begun(record, POLICIES)]
        scores = [seed["scores"] for seed in seeds]
        gains = [_gain(seeds, *keys) for keys in _GAINS]
        bleu = [statistics.fmean(of_seed["greedy"]["bleu"].values()) for of_seed in scores]
        similarity = [of_seed["greedy"]["similarity"] for of_seed in scores if "similarity" in of_seed["greedy"]]
        kl = [of_seed["kl_to_reference"] for of_seed in scores if "kl_to_reference" in of_seed]
        table.add_row(
            title_of(run),
            *(f"{statistics.fmean(of_seed['sampled']['chrf'] for of_seed in scores):.1f}", gains[0]),
            *(f"{statistics.fmean(of_seed['greedy']['chrf'] for of_seed in scores):.1f}", gains[1]),
            f"{statistics.fmean(bleu):.1f}",
            f"{statistics.fmean(similarity):.3f}" if similarity else "–",
            f"{100 * statistics.fmean(of_seed['sampled']['copied'] for of_seed in scores):.1f}",
            f"{statistics.fmean(of_seed['sampled']['length_mean'] for of_seed in scores):.1f}",
            f"{statistics.fmean(kl):.3f}" if kl else "–",
        )
    return table


def _gain(seeds: Sequence[Record], key: str, interval: str) -> str:
    gain = _gain_figure(seeds, key, interval)
    return "–" if gain is None else _shown(gain, 1, 2, with_spread=True, sign="+")


def _gain_figure(seeds: Sequence[Record], key: str, interval: str) -> dict[str, Any] | None:
    """As `figure`, of what a policy gained; None for SFT."""
    if "learned" not in seeds[0]:
        return None
    bounds = tuple(seeds[0]["learned"][interval]) if len(seeds) == 1 else None
    return over_seeds([seed["learned"][key] for seed in seeds]) | {"interval": bounds}


def judges_figures(record: Record) -> Mapping[str, Draw]:
    """By name: pairs in order, and the rewards of RLVR."""
    judges = {name: figure(record, name, "accuracy_ties_half") for name in common(record, JUDGES)}
    defined = {name: pairs for name, pairs in judges.items() if pairs is not None}
    curves = {seed: of_seed["rlvr"] for seed, of_seed in record["seeds"].items() if of_seed["rlvr"]}

    def draw(axes: Axes, theme: Theme) -> None:
        _draw_intervals(axes, theme, 0, range(len(defined)), list(defined.values()), digits=2)
        axes.axvline(0.5, color=theme.ink, linewidth=0.8, linestyle=":")
        _name_rows(axes, [title_of(name) for name in defined])
        axes.set_xlabel("pairs in order, ties as half")

    def draw_rlvr(axes: Axes, theme: Theme) -> None:
        for number, (seed, curve) in enumerate(curves.items()):
            points = {step: [reward] for step, reward in curve}
            draw_curve(axes, points, f"seed {seed}", theme.series[number % len(theme.series)], "-")
        axes.set_xlabel("step")
        axes.set_ylabel("reward of a reply")

    return ({"judges": draw} if defined else {}) | ({"rlvr": draw_rlvr} if curves else {})


def policies_figures(record: Record) -> Mapping[str, Draw]:
    """By name: gains of the policies, and how each judge follows gold on its policy's rollouts while that moves."""
    runs = [run for run in common(record, POLICIES) if run != SFT]
    seeds_of_run = {run: [of_seed[run] for of_seed in begun(record, POLICIES)] for run in runs}
    followed = {run: points for run, of_run in seeds_of_run.items() if (points := _correlations(of_run))}

    def draw(axes: Axes, theme: Theme) -> None:
        for number, (keys, label) in enumerate(_GAINS.items()):
            rows = [row + (number - 0.5) * 0.36 for row in range(len(runs))]
            gains = [gain for of_run in seeds_of_run.values() if (gain := _gain_figure(of_run, *keys))]
            _draw_intervals(axes, theme, number, rows, gains, label=label)
        axes.axvline(0, color=theme.ink, linewidth=0.8, alpha=0.4)
        _name_rows(axes, [title_of(run).removeprefix("GRPO, ") for run in runs])
        axes.set_xlabel("chrF over SFT")

    def draw_followed(axes: Axes, theme: Theme) -> None:
        for number, (run, points) in enumerate(followed.items()):
            colour, style = theme.series[number % len(theme.series)], STYLES[number // len(theme.series) % len(STYLES)]
            draw_curve(axes, dict(sorted(points.items())), title_of(run), colour, style)
        axes.set_xlabel("step")
        axes.set_ylabel("correlation with chrF")

    return ({"gains": draw} if runs else {}) | ({"followed": draw_followed} if followed else {})


def _correlations(of_run: Sequence[Record]) -> dict[int, list[float]]:
    """A judge's correlation with gold in each seed, by step; empty for a run of few steps, which measured none."""
    points: dict[int, list[float]] = {}
    for step, value in (point for seed in of_run for point in seed["judge_correlation"]):
        points.setdefault(int(step), []).append(value)
    return points


def _draw_intervals(
    axes: Axes,
    theme: Theme,
    colour: int,
    rows: Sequence[float],
    numbers: Sequence[Mapping[str, Any]],
    digits: int = 1,
    label: str | None = None,
) -> None:
    """A mean in each row, with the interval of one seed or the spread of several, and its number beside it."""
    for row, number in zip(rows, numbers, strict=True):
        mean, spread = number["mean"], number["sd"] or 0.0
        low, high = number["interval"] or (mean - spread, mean + spread)
        axes.hlines(row, low, high, color=theme.ink, linewidth=1.2)
        end = (max(high, mean), row)
        text = f"{round(mean, digits) + 0.0:.{digits}f}"  # not -0.0
        axes.annotate(text, end, (5, 0), textcoords="offset points", va="center", fontsize=8)
    means = [number["mean"] for number in numbers]
    axes.plot(means, rows, "o", color=theme.series[colour], label=label, markersize=5)


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", labelsize=8)
    axes.grid(axis="y", visible=False)
    axes.invert_yaxis()
    axes.margins(x=0.15)  # for the numbers beside the intervals
