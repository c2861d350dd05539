"""Gold scores by the place in the group, for a judge that compares."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from math import factorial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from grrm.data.annotation.alignment import align_group, fault_line
from grrm.data.annotation.groups import SCHEMA
from grrm.data.convert import ConversionReport, RejectedRow
from grrm.data.converters.groups import read_scored_groups
from grrm.data.documents import LOCATION, file_locations, with_location
from grrm.data.layouts.user_rows import COLUMNS
from grrm.data.parquet import check_parquet, write_rows
from grrm.errors import UserError

TOP = 9  # so that every score is one digit
Analysis = Literal["none", "alignment"]


def relative_groups(
    parquet: Path,
    out: Path,
    *,
    top_score: int = TOP,
    keep_scores: bool = False,
    group_size: int = 0,
    orders: int = 0,
    analysis: Analysis = "none",
    seed: int = 0,
) -> ConversionReport:
    """Copy the groups of `grrm data groups`, their scores spread anew unless `keep_scores` says otherwise.

    With a `group_size`, each group is dealt at random into groups of that many or fewer, at least two, each scored by
    `spread_scores` on its own. With `orders` each is written in so many random orders of its candidates, all
    different, or all there are; otherwise in its own.

    Analyses, which tell of the old scores, are left empty, or say with "alignment" how each candidate differs from the
    reference (see `align_group`), which only this needs. Groups whose scores are all the same have nothing to compare;
    they are left out and counted.

    Raises UserError for a `group_size` of 1, an `out` that does not end with .parquet, when no group is left, and as
    `read_groups`.
    """
    if group_size == 1:
        raise UserError(f"group_size is {group_size}; it must be at least 2, or 0 for whole groups")
    check_parquet(out, "groups")
    intake = read_scored_groups(parquet, needs_reference=analysis == "alignment")
    locations = file_locations(parquet)
    rejected = list(intake.rejected)
    schema = SCHEMA
    if keep_scores:
        kind = pa.list_(intake.table.schema.field("scores").type.value_type)
        schema = SCHEMA.set(SCHEMA.get_field_index("scores"), pa.field("scores", kind))
    rows: list[tuple[Any, ...]] = []
    rng = random.Random(seed)
    for number, group in zip(intake.numbers(), intake.table.to_pylist(), strict=True):
        for members in _dealt(len(group["scores"]), group_size, rng):
            gold = [group["scores"][index] for index in members]
            new = gold if keep_scores else spread_scores(gold, top_score)
            if new is None or len({*new}) < 2:
                rejected.append(RejectedRow(number, "all its scores are the same"))
                continue
            scores = dict(zip(members, new, strict=True))
            for order in _orders(members, orders, rng):
                texts = [group["mt_texts"][index] for index in order]
                copied = [group[name] for name in COLUMNS]
                new_scores = [scores[index] for index in order]
                location = locations[number - 1] if locations else ()
                rows.append((*copied, texts, new_scores, *_analyses(group, texts, analysis), *location))
    if not rows:
        raise UserError(f"{parquet} has no group whose scores differ; there is nothing to compare")
    write_rows(out, rows, with_location(schema, LOCATION if locations else ()))
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


def _orders(members: list[int], n_orders: int, rng: random.Random) -> list[tuple[int, ...]]:
    if not n_orders:
        return [tuple(members)]
    chosen: dict[tuple[int, ...], None] = {}
    while len(chosen) < min(n_orders, factorial(len(members))):
        chosen.setdefault(tuple(rng.sample(members, len(members))))
    return list(chosen)


def _analyses(group: dict[str, Any], texts: list[str], analysis: Analysis) -> tuple[str, list[str]]:
    """The analysis of the group, and those of its candidates one by one."""
    if analysis == "none":
        return "", [""] * len(texts)
    source, reference = group["src_text"], group["trg_text"]
    return align_group(source, reference, texts), [fault_line(source, reference, text) for text in texts]


def spread_scores(scores: Sequence[float], top_score: int = TOP) -> list[int] | None:
    """The scores spread evenly from 0 to `top_score` in the same order, equals alike; None where all are the same."""
    levels = sorted(set(scores))
    if len(levels) < 2:
        return None
    return [round(top_score * levels.index(score) / (len(levels) - 1)) for score in scores]
