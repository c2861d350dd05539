"""Options and numbers in tables that the reports of `grrm eval` share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from grrm.cli.options import COUNT, FILE, option_group

if TYPE_CHECKING:
    from grrm.evaluation.bootstrap import Interval


report_options = option_group(
    click.option("--json", "json_file", type=FILE, help="Write the results to this .json file."),
    click.option("--resamples", type=COUNT, default=1000, show_default=True, help="Bootstrap resamples."),
    click.option(
        "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed of the resampling."
    ),
)


def mean_and_interval(interval: Interval | None, digits: int) -> tuple[str, str]:
    """Two cells: the mean, and the ends of its interval; dashes where there is none."""
    if interval is None:
        return "-", "-"
    return f"{interval.mean:.{digits}f}", f"{interval.low:.{digits}f} to {interval.high:.{digits}f}"


def percent(share: float | None) -> str:
    """A share as a cell of the table."""
    return "-" if share is None else f"{100 * share:.1f} %"


def judge_cost(n_groups: int, seconds: float, before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """Return the cost of a group, from the counters of a judge before and after."""
    n_groups = max(n_groups, 1)
    tokens = [
        f"{(after[name] - before[name]) / n_groups:.4g} {unit}"
        for name, unit in (("tokens_read", "tokens read"), ("tokens_written", "tokens written"))
        if after[name] > before[name]
    ]
    return f"a group took {', '.join([*tokens, f'{1e3 * seconds / n_groups:.3g} ms'])}"
