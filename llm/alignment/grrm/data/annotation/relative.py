"""Gold scores by the place in the group, for a judge that compares."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from grrm.data.annotation.groups import SCHEMA
from grrm.data.convert import ConversionReport, RejectedRow
from grrm.data.parquet import iter_raw_rows, write_rows
from grrm.errors import UserError

TOP = 9  # so that every score is one digit
_COLUMNS = tuple(SCHEMA.names)


def relative_groups(
    parquet: Path, out: Path, *, top_score: int = TOP, group_size: int = 0, seed: int = 0
) -> ConversionReport:
    """Copy the groups of `grrm data groups`, their scores replaced by `places`.

    With a `group_size`, each group is dealt at random into groups of that many or fewer, at least two, each with its
    own places. Groups whose scores are all the same have nothing to compare; they are left out and counted. Raises
    UserError for a `top_score` below 1, a `group_size` of 1 or below 0, and as `iter_raw_rows` does.
    """
    if top_score < 1:
        raise UserError(f"top_score is {top_score}; it must be at least 1")
    if group_size < 0 or group_size == 1:
        raise UserError(f"group_size is {group_size}; it must be at least 2, or 0 for whole groups")
    rejected: list[RejectedRow] = []
    rows: list[tuple[Any, ...]] = []
    rng = random.Random(seed)
    for number, values in iter_raw_rows(parquet, _COLUMNS):
        row = dict(zip(_COLUMNS, values, strict=True))
        for members in _dealt(len(row["scores"]), group_size, rng):
            scores = places([row["scores"][index] for index in members], top_score)
            if scores is None:
                rejected.append(RejectedRow(number, "all its scores are the same"))
                continue
            chosen = {name: [row[name][index] for index in members] for name in ("mt_texts", "analyses")}
            rows.append(tuple({**row, **chosen, "scores": scores}.values()))
    write_rows(out, rows, SCHEMA)
    return ConversionReport(out, len(rows), tuple(rejected))


def _dealt(n_members: int, group_size: int, rng: random.Random) -> Iterator[list[int]]:
    """The members of each new group; one that is left over stays out."""
    members = list(range(n_members))
    if not group_size or n_members <= group_size:
        yield members
        return
    rng.shuffle(members)
    for start in range(0, n_members - 1, group_size):
        yield sorted(members[start : start + group_size])


def places(scores: Sequence[int], top_score: int = TOP) -> list[int] | None:
    """The scores spread evenly from 0 to `top_score` in the same order, equals alike; None where all are the same."""
    levels = sorted(set(scores))
    if len(levels) < 2:
        return None
    return [round(top_score * levels.index(score) / (len(levels) - 1)) for score in scores]
