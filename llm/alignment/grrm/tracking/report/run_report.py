"""The report of a run or several: one HTML file with curves, groups, statuses and what judges disagree about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grrm.errors import UserError
from grrm.tracking.metrics_log import read_metrics
from grrm.tracking.report.charts import Metrics, draw_charts, status_chart
from grrm.tracking.report.page import page_environment, write_bytes
from grrm.tracking.report.pictures import Picture, inline
from grrm.tracking.report.selection import Selection, select_groups
from grrm.tracking.rollout_dump import ROLLOUTS, read_arguments

_SHOWN_METRICS = (
    ("reward_mean", 3),
    ("score_mean", 2),
    ("eval_reward", 3),
    ("eval_reward_greedy", 3),
    ("eval_chrf", 1),
    ("eval_chrf_greedy", 1),
    ("eval_bleu", 1),
    ("eval_pair_accuracy", 3),
    ("eval_correlation", 3),
    ("eval_loss", 3),
    ("loss", 4),
    ("kl", 4),
    ("frac_unscored", 3),
    ("frac_zero_variance", 3),
)


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """One run: `settings` are those of its last part, None where it kept none, as runs without rollouts do."""

    name: str
    metrics: Metrics
    selection: Selection | None
    statuses: Picture | None
    settings: Mapping[str, Any] | None

    @property
    def last_step(self) -> int:
        """The last step that was logged."""
        return max((int(line["step"]) for line in self.metrics), default=0)

    def ends(self, key: str) -> tuple[float, float] | None:
        """The first and the last number that was logged for `key`."""
        values = [line[key] for line in self.metrics if isinstance(line.get(key), (int, float))]
        return (values[0], values[-1]) if values else None


def write_report(runs: Sequence[Path], out: Path, groups: int = 4) -> None:
    """Write the page of these output folders to `out`, at most `groups` groups of a kind.

    Raises UserError for a folder that holds no run, ValueError for a damaged file.
    """
    found = [_read(run, name, groups) for run, name in zip(runs, _names(runs), strict=True)]
    write_bytes(out, render(found).encode())


def render(runs: Sequence[ReportedRun]) -> str:
    """The page as text. No address in it leads anywhere: pictures, style and script are inside."""
    charts = draw_charts({run.name: run.metrics for run in runs})
    shown = [
        (key, digits, [run.ends(key) for run in runs])
        for key, digits in _SHOWN_METRICS
        if any(run.ends(key) for run in runs)
    ]
    environment = page_environment()
    environment.filters["inline"] = inline
    return environment.get_template("run_report.html.jinja").render(
        runs=runs, charts=charts, shown=shown, settings=_different_settings(runs)
    )


def _read(run: Path, name: str, groups: int) -> ReportedRun:
    metrics, arguments = read_metrics(run), read_arguments(run / ROLLOUTS)
    has_rollouts = any((run / ROLLOUTS).glob("rollouts-rank*"))
    if not metrics and not has_rollouts:
        raise UserError(f"'{run}' has neither metrics.jsonl nor rollouts: name the output_dir of a run")
    selection = select_groups(run, groups) if has_rollouts else None
    return ReportedRun(
        name, metrics, selection, status_chart(metrics), arguments[max(arguments)] if arguments else None
    )


def _names(runs: Sequence[Path]) -> list[str]:
    """The folders' last parts that tell them apart. Raises UserError for the same folder twice."""
    paths = [run.resolve() for run in runs]
    if len(set(paths)) != len(paths):
        raise UserError("a run is named twice: name each once")
    for depth in range(1, max(len(path.parts) for path in paths)):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def _different_settings(runs: Sequence[ReportedRun]) -> list[tuple[str, list[Any]]]:
    """Of several runs the settings in which they differ, of one all that are set."""
    settings = [run.settings or {} for run in runs]
    names = sorted({name for one in settings for name in one})
    columns = [(name, [one.get(name) for one in settings]) for name in names]
    if len(runs) == 1:
        return [(name, values) for name, values in columns if values[0] not in (None, "", [], {})]
    return [(name, values) for name, values in columns if any(value != values[0] for value in values)]
