"""The verdicts of `grrm rank` as columns beside the rows, a summary, and a table for a terminal."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from grrm.cli.devices import over_devices
from grrm.cli.reports import judge_cost, unread_replies
from grrm.errors import UserError
from grrm.gqm.groups import Status

if TYPE_CHECKING:
    from grrm.cli.judge_options import ChosenJudge
    from grrm.cli.records import Records
    from grrm.cli.results import Columns
    from grrm.gqm.groups import Group, Verdict
    from grrm.judges.interface import Judge
    from grrm.judges.metrics import JudgeMetrics

SCORES, SETTINGS = "judge_scores", "judge_settings"
UNANSWERED = frozenset((Status.JUDGE_TIMEOUT, Status.JUDGE_UNREACHABLE))


def verdict_types() -> dict[str, Any]:
    """The columns that a judge's verdicts become, and their types in a parquet file."""
    import pyarrow as pa

    return {
        SCORES: pa.list_(pa.float64()),
        "judge_statuses": pa.list_(pa.string()),
        "judge_ranking": pa.list_(pa.list_(pa.int64())),
        "judge_response": pa.string(),
        "judge_attempts": pa.int64(),
        "judge_rejections": pa.list_(pa.string()),
        "judge_tokens": pa.int64(),
        "judge_order_scores": pa.list_(pa.list_(pa.float64())),
        SETTINGS: pa.string(),
    }


def judged(
    judge: ChosenJudge,
    groups: Sequence[Group],
    batch_rows: int,
    metrics: JudgeMetrics,
    earlier: Mapping[int, Mapping[str, Any]],
    remedy: str = "give the output as ROWS with --resume to judge those alone",
    *,
    resumes: bool = False,
) -> Columns:
    """The verdicts on the groups as columns; `earlier` has those that need no judge, by the index of their row.

    `remedy` is the advice where servers did not answer for some of them. With `resumes` the same command goes on where
    it ended early, and asks again for those.

    Raises UserError as the judge does, and where no server answered at all.
    """
    still_open = [group for group in groups if int(group.group_id) not in earlier]
    new = _judged(judge, still_open, batch_rows, metrics, remedy, resumes) if still_open else {}
    columns: dict[str, list[Any]] = {}
    for name in verdict_types():
        values = iter(new.get(name, ()))
        earlier_rows = (earlier.get(int(group.group_id)) for group in groups)
        columns[name] = [next(values) if row is None else row[name] for row in earlier_rows]
    return columns


def _judged(
    chosen: ChosenJudge, groups: Sequence[Group], batch_rows: int, metrics: JudgeMetrics, remedy: str, resumes: bool
) -> dict[str, list[Any]]:
    """The new verdicts; what they are, and what they cost, is told on stderr."""
    from grrm.judges.value_head import RewardModelJudge, clipping

    opened, before, seconds, n_judged = cache(chosen.open), metrics.values(), 0.0, 0
    status_at = list(verdict_types()).index("judge_statuses")

    def judge_rows(judge: Judge, rows: Sequence[int]) -> list[Any]:
        nonlocal seconds, n_judged
        start_s = time.perf_counter()
        verdicts = judge.judge([groups[row] for row in rows])
        seconds, n_judged = seconds + time.perf_counter() - start_s, n_judged + len(rows)
        return _values(verdicts)

    settings = json.dumps(chosen.settings, ensure_ascii=False, sort_keys=True)
    values_of_rows = over_devices(
        len(groups),
        batch_rows,
        opened,
        judge_rows,
        "ranking",
        resumes=resumes,
        is_final=lambda values: UNANSWERED.isdisjoint(values[status_at]),
    )
    rows = [[*values, settings] for values in values_of_rows]
    columns = {name: [row[i] for row in rows] for i, name in enumerate(verdict_types())}
    _tell_of_unanswered(columns["judge_statuses"], remedy)
    counts = Counter(status for statuses in columns["judge_statuses"] for status in statuses)
    click.echo(", ".join(f"{status} {count}" for status, count in sorted(counts.items())), err=True)
    unread = unread_replies(*(columns[f"judge_{name}"] for name in ("statuses", "rejections", "response")))
    if unread:
        click.echo(unread, err=True)
    agreement = metrics.mean_agreement()
    if agreement is not None:
        n_groups = int(metrics.values()["agreement_groups"])
        click.echo(f"agreement of the orders of {n_groups} groups (Kendall tau-b): {agreement:.3f}", err=True)
    after = metrics.values()
    n_clipped, n_scores = (int(after[name] - before[name]) for name in ("clipped_scores", "model_scores"))
    if n_clipped and isinstance(judge := opened(), RewardModelJudge):
        click.echo(clipping(n_clipped, n_scores, judge.score_scale), err=True)
    if n_judged:  # not where others have judged
        click.echo(judge_cost(n_judged, seconds, before, after), err=True)
    return columns


def _values(verdicts: Sequence[Verdict]) -> list[Any]:
    """Of each verdict its values in the columns of `verdict_types` but the last, in their order."""
    from grrm.inference.rank import result_of

    result = result_of(verdicts)
    return [
        list(row)
        for row in zip(
            [list(verdict.scores) for verdict in verdicts],
            *(result[name] for name in ("statuses", "rankings", "responses", "attempts", "rejections")),
            [verdict.tokens for verdict in verdicts],
            [[list(scores) for scores in verdict.order_scores] or None for verdict in verdicts],
            strict=True,
        )
    ]


def take_earlier(records: Records, score_key: str) -> dict[int, dict[str, Any]]:
    """Take the columns of an earlier run from the rows; those of the rows that need no further answer, by index.

    Raises UserError where there are none, or `score_key` says that an earlier run's are not all there.
    """
    if score_key != SCORES or not any("judge_statuses" in row for row in records.rows):
        raise UserError(f"{records.origin} has no column judge_statuses to resume from: give what `grrm rank` wrote")
    earlier_columns = [{name: row.pop(name, None) for name in verdict_types()} for row in records.rows]
    return {
        index: columns
        for index, columns in enumerate(earlier_columns)
        if UNANSWERED.isdisjoint(columns["judge_statuses"] or UNANSWERED)
    }


def check_same_judge(origin: str, earlier: Iterable[Mapping[str, Any]], settings: Mapping[str, Any]) -> None:
    """Raises UserError where verdicts of an earlier run are by a judge of other settings, which it names."""
    for text in dict.fromkeys(columns[SETTINGS] for columns in earlier if columns[SETTINGS]):
        theirs = json.loads(text)
        names = sorted(name for name in {*theirs, *settings} if theirs.get(name) != settings.get(name))
        if names:
            differing = ", ".join(
                f"{name} is {theirs.get(name, 'the default')} there and {settings.get(name, 'the default')} here"
                for name in names
            )
            raise UserError(
                f"{origin} has verdicts of another judge ({differing}): give the same options, or judge the original "
                "rows with another --out and without --resume"
            )


def _tell_of_unanswered(statuses: Sequence[Sequence[str]], remedy: str) -> None:
    """Say on stderr how many rows have no verdict for want of an answer. Raises UserError where that is all of them."""
    n_open = sum(not UNANSWERED.isdisjoint(of_row) for of_row in statuses)
    if n_open and n_open == len(statuses):
        raise UserError(f"no server answered for any of the {n_open} rows: see the warning above, and start it again")
    if n_open:
        click.echo(f"no server answered for {n_open} of {len(statuses)} rows: {remedy}", err=True)


def with_empty_rows(columns: Columns, numbers: Sequence[int], n_rows: int) -> Columns:
    """The columns of `n_rows` rows, None in all but those of these numbers (from 1), which `columns` has in order."""
    spread = {}
    for name, values in columns.items():
        by_number = dict(zip(numbers, values, strict=True))
        spread[name] = [by_number.get(number) for number in range(1, n_rows + 1)]
    return spread


def show_verdicts(groups: Sequence[Group], columns: Columns) -> None:
    """A table for a terminal, the candidates of each group best first."""
    from grrm.cli.results import show_table

    rows: list[list[str] | None] = []
    for group, scores, statuses in zip(groups, columns["judge_scores"], columns["judge_statuses"], strict=True):
        best_first = sorted(range(len(scores)), key=lambda i: (scores[i] is None, -(scores[i] or 0.0), i))
        rows += [None, [str(int(group.group_id) + 1), "", "", group.task.source]]
        for i in best_first:
            score = "-" if scores[i] is None else f"{scores[i]:g}"
            rows.append(["", score, statuses[i], group.candidates[i].translation or ""])
    show_table("Verdicts", ["row #", "score #", "status", "source and candidates"], rows)
