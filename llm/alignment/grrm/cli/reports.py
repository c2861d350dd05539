"""Options and numbers in tables that the reports of `grrm eval` share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from grrm.cli.options import COUNT, FILE, option_group
from grrm.gqm.groups import Status

if TYPE_CHECKING:
    from grrm.evaluation.bootstrap import Interval

_SHOWN = 160  # characters of a reply, at its end, where a verdict is

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


def unread_replies(
    statuses: Sequence[Sequence[str]], rejections: Sequence[Sequence[str]], replies: Sequence[str]
) -> str | None:
    """Return how many of a judge's replies could not be read and why, the end of one, and the remedy; None without any.

    Each list has an item for each group: the statuses, the reasons of its unreadable replies, and its last reply.
    """
    reasons = Counter(reason for of_group in rejections for reason in of_group)
    if not reasons:
        return None
    counts = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
    sentence = f"replies that could not be read: {counts}"
    unread = [reply for reply, own in zip(replies, statuses, strict=True) if Status.JUDGE_UNPARSABLE in own]
    if not unread:
        return sentence  # others that were drawn instead could
    shown = repr(f"{'…' * (len(unread[0]) > _SHOWN)}{unread[0][-_SHOWN:]}")
    remedy = "see that --judge, --prompt-type and --chat-template are those of the model's training"
    if reasons.most_common(1)[0][0] == "truncated":
        remedy = "raise --max-new-tokens"
    return f"{sentence}; {len(unread)} of {len(replies)} groups are without a verdict, one for {shown}: {remedy}"


def judge_cost(n_groups: int, seconds: float, before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """Return the cost of a group, from the counters of a judge before and after."""
    n_groups = max(n_groups, 1)
    tokens = [
        f"{(after[name] - before[name]) / n_groups:.4g} {unit}"
        for name, unit in (("tokens_read", "tokens read"), ("tokens_written", "tokens written"))
        if after[name] > before[name]
    ]
    return f"a group took {', '.join([*tokens, f'{1e3 * seconds / n_groups:.3g} ms'])}"
