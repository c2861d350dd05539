"""Tables and figures of the study, from the records of one seed or several."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from textwrap import fill
from typing import Any

import click
from matplotlib.axes import Axes
from rich.console import Console
from rich.table import Table

from grrm.demo.results import over_seeds
from grrm.demo.settings import GRPO, title_of
from grrm.demo.stages import write_json
from grrm.demo.study_plan import EIGHT_CANDIDATES_GROUPS, LARGE, LARGE_STEPS, MIXED, RankerArm, ranker_arms
from grrm.tracking.report.page import write_bytes
from grrm.tracking.report.pictures import STYLES, Picture, Theme, bar_row, draw_picture

Records = Sequence[Mapping[str, Any]]
SUMMARY = "study_summary.json"
RANKING, COST = ("accuracy", "correlation"), {"tied": 3, "tokens": 1, "milliseconds_a_group": 1}  # and digits
COLUMNS = ("pairs", "correlation", "ties", "tokens", "ms", "RL gain")
_LABEL_WIDTH = 11  # characters of a policy's name below its bars
_WAYS = {"none": "each candidate by itself", "group": "candidates compared"}


def write_study(out: Path, paths: Sequence[Path]) -> dict[str, Any]:
    """Write `study_summary.json` and `figures/study_*.png` into `out` from records of seeds; returns the summary."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    summary = {
        "seeds": [record["seed"] for record in records],
        "judges": {name: judge_figures(records, name) for name in common(records, "judges")},
        "policies": {run: policy_figures(records, run) for run in common(records, "policies")},
        "versions": records[0]["versions"],
    }
    for picture in pictures(records):
        if picture.light_png is not None:
            write_bytes(out / "figures" / f"study_{picture.name}.png", picture.light_png)
    write_json(out / SUMMARY, summary)
    return summary


def common(records: Records, key: str) -> list[str]:
    """The judges or policies that every record has; a study that was stopped has fewer."""
    return [name for name in records[0][key] if all(name in record[key] for record in records)]


def judge_figures(records: Records, name: str) -> dict[str, Any]:
    """`over_seeds` of accuracy, correlation, ties, tokens and milliseconds of a group, on each file of groups."""
    found = [record["judges"][name] for record in records]
    sets = [key for key, value in found[0].items() if isinstance(value, Mapping)]
    return {
        of_set: {key: _over([one[of_set].get(key) for one in found]) for key in (*RANKING, *COST)} for of_set in sets
    }


def policy_figures(records: Records, run: str) -> dict[str, Any]:
    """`over_seeds` of the gains in sampled and greedy chrF."""
    learned = [record["policies"][run]["learned"] for record in records]
    return {key: over_seeds([one[key] for one in learned]) for key in ("gain", "greedy_gain")}


def _over(found: Sequence[Mapping[str, float] | float | None]) -> dict[str, Any] | None:
    """Of numbers, or of the means of intervals; None where a seed has none."""
    known = [one["mean"] if isinstance(one, Mapping) else one for one in found if one is not None]
    return over_seeds(known) if len(known) == len(found) else None


def study_tables(summary: Mapping[str, Any]) -> list[Table]:
    """The judges and the policies, for a console.

    Tokens and milliseconds are of a group; the gain is that of the policy trained against the judge, in sampled chrF.
    """
    seeds = ", ".join(map(str, summary["seeds"]))
    judges = Table("judge", title=f"Judges, seed{'s' if ',' in seeds else ''} {seeds}", title_justify="left")
    mixed = Table("judge", title="On groups of mixed quality", title_justify="left")
    for table, columns in ((judges, COLUMNS), (mixed, COLUMNS[:2])):
        for column in columns:
            table.add_column(column, justify="right")
    arms = {arm.name: arm.title for arm in ranker_arms() if arm.steps < LARGE_STEPS}
    for name, sets in summary["judges"].items():
        title = arms.get(name) or title_of(name)
        ranking, on_mixed = ([_shown(sets[of_set][key], 3) for key in RANKING] for of_set in ("heldout", MIXED))
        cost = [_shown(_mean_of(sets["heldout"][key]), digits) for key, digits in COST.items()]
        gain = summary["policies"].get(f"{GRPO}_{name}", {}).get("gain")
        judges.add_row(title, *ranking, *cost, _shown(gain, 2, "+"))
        mixed.add_row(title, *on_mixed)
    policies = Table("policy", title="Gain of chrF over SFT", title_justify="left")
    for column in ("sampled", "greedy"):
        policies.add_column(column, justify="right")
    for run, found in summary["policies"].items():
        policies.add_row(title_of(run), *(_shown(found[key], 2, "+") for key in ("gain", "greedy_gain")))
    return [judges, mixed, policies]


def _mean_of(figure: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if figure is None else {"mean": figure["mean"], "sd": None}


def _shown(figure: Mapping[str, Any] | None, digits: int, sign: str = "") -> str:
    if figure is None:
        return "–"
    spread = "" if figure["sd"] is None else f" ± {figure['sd']:.{digits}f}"
    return f"{figure['mean']:{sign}.{digits}f}{spread}"


def pictures(records: Records) -> list[Picture]:
    """Where comparing pays, what the policies gained, and how the judges follow a policy that moves."""
    judges = common(records, "judges")
    arms = {arm.name: arm for arm in ranker_arms() if arm.name in judges}
    by_groups = [arm for arm in arms.values() if arm.gold == LARGE and arm.name.endswith("_groups")]
    of_eight = [arm for arm in by_groups if arm.groups == EIGHT_CANDIDATES_GROUPS]
    by_candidates = [arm for arm in arms.values() if arm.name.endswith("_candidates")]
    drawn = [_gains(records), _followed(records)]
    if any(record.get("rlvr") for record in records):
        drawn.append(_rlvr(records))
    if by_groups:
        drawn.append(_by_size(records, by_groups, "groups", "Groups to learn from", lambda arm: arm.groups))
    if by_candidates:
        title = "Candidates of a group"
        drawn.append(_by_size(records, by_candidates + of_eight, "candidates", title, lambda arm: arm.candidates))
    return drawn


def _by_size(
    records: Records, arms: Sequence[RankerArm], name: str, title: str, size_of: Callable[[RankerArm], int]
) -> Picture:
    def draw(axes: Axes, theme: Theme) -> None:
        for colour, (compare, label) in enumerate(_WAYS.items()):
            of_way = sorted((arm for arm in arms if arm.compare == compare), key=size_of)
            sizes, found = [size_of(arm) for arm in of_way], [_correlation(records, arm.name) for arm in of_way]
            means = [mean for mean, _, _ in found]
            bars = [[mean - low for mean, low, _ in found], [high - mean for mean, _, high in found]]
            axes.errorbar(sizes, means, bars, color=theme.series[colour], label=label, marker="o", capsize=3)
        axes.set_xscale("log", base=2)
        sizes = sorted({size_of(arm) for arm in arms})
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
        axes.set_xlabel(title.lower())
        axes.set_ylabel("correlation within a group")

    bars = "standard deviation over seeds" if len(records) > 1 else "95 % interval over groups"
    text = f"Held-out groups of eight samples; rankers of equal training; {bars}."
    return draw_picture(name, title, text, draw)


def _correlation(records: Records, judge: str) -> tuple[float, float, float]:
    """On held-out groups: mean, and bounds a standard deviation over seeds away; of one seed its interval."""
    if len(records) == 1:
        of_seed = records[0]["judges"][judge]["heldout"]["correlation"]
        return of_seed["mean"], of_seed["low"], of_seed["high"]
    figure = judge_figures(records, judge)["heldout"]["correlation"]
    return figure["mean"], figure["mean"] - figure["sd"], figure["mean"] + figure["sd"]


def _gains(records: Records) -> Picture:
    runs = common(records, "policies")

    def draw(axes: Axes, theme: Theme) -> None:
        for offset, (key, label) in enumerate((("gain", "sampled"), ("greedy_gain", "greedy"))):
            found = [policy_figures(records, run)[key] for run in runs]
            places = [position + (offset - 0.5) * 0.38 for position in range(len(runs))]
            bar_row(axes, theme, offset, places, found, label)
        axes.axhline(0, color=theme.ink, linewidth=0.8)
        titles = [title_of(run).removeprefix("GRPO, ") for run in runs]
        axes.set_xticks(range(len(runs)), [fill(title, _LABEL_WIDTH) for title in titles])
        axes.margins(y=0.12)
        axes.tick_params(axis="x", labelsize=7)
        axes.set_ylabel("chrF over SFT")
        axes.grid(axis="x", visible=False)

    return draw_picture("gains", "What each judge teaches", "Held-out corpus chrF after GRPO, minus SFT's.", draw)


def _followed(records: Records) -> Picture:
    def draw(axes: Axes, theme: Theme) -> None:
        for number, run in enumerate(common(records, "policies")):
            points: dict[int, list[float]] = {}
            for record in records:
                for step, value in record["policies"][run]["judge_correlation"]:
                    points.setdefault(int(step), []).append(value)
            if run != "grpo" and points:
                steps = sorted(points)
                means = [statistics.fmean(points[step]) for step in steps]
                colour, style = theme.series[number % len(theme.series)], STYLES[number // len(theme.series)]
                axes.plot(steps, means, style, color=colour, label=title_of(run), linewidth=1.4)
        axes.set_xlabel("step")
        axes.set_ylabel("correlation with chrF")

    return draw_picture("followed", "Judges while the policy moves", "On the policy's own training rollouts.", draw)


def _rlvr(records: Records) -> Picture:
    def draw(axes: Axes, theme: Theme) -> None:
        judges = dict.fromkeys(judge for record in records for judge in record.get("rlvr", {}))
        for number, judge in enumerate(judges):
            for style, record in zip(cycle(STYLES), records, strict=False):
                curve = record.get("rlvr", {}).get(judge, [])
                label = f"{title_of(judge)}, seed {record['seed']}"
                if curve:
                    axes.plot(*zip(*curve, strict=True), style, color=theme.series[number], label=label, linewidth=1.4)
        axes.set_xlabel("step")
        axes.set_ylabel("reward of a reply")

    return draw_picture("rlvr", "Generative judges learn to rank", "RLVR: mean reward of the judge's replies.", draw)


@click.command()
@click.argument("records", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="A folder.")
def main(records: Sequence[Path], out: Path) -> None:
    """Tables and figures from RECORDS of seeds that were studied apart."""
    for table in study_tables(write_study(out, records)):
        Console(width=120).print(table)


if __name__ == "__main__":
    main()
