"""The judges of a mixture on the wire: what each of them said of a group, beside the verdict mixed of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from grrm.gqm.groups import PartVerdict, Status
from grrm.rewards.mixing import Normalisation

Score = Annotated[FiniteFloat, Field(ge=0, le=10)]


class WirePart(BaseModel):
    """One judge of a mixture; `statuses` and `scores` are in the order of the verdict's candidates."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)

    name: Annotated[str, Field(min_length=1, max_length=256)]
    weight: Annotated[FiniteFloat, Field(gt=0)]
    normalise: Normalisation
    statuses: Annotated[list[Annotated[Status, Field(strict=False)]], Field(fail_fast=True)]
    scores: Annotated[list[Score | None], Field(fail_fast=True)]
    analysis: str = ""
    counts: bool = True
    fell_back: bool = False
    attempts: Annotated[int, Field(ge=0)] = 0
    rejections: Annotated[list[str], Field(fail_fast=True)] = []


def part_fields(part: PartVerdict) -> dict[str, Any]:
    """The fields of a part, as messages and dumps have them."""
    return {
        "name": part.name,
        "weight": part.weight,
        "normalise": part.normalise,
        "statuses": [status.value for status in part.statuses],
        "scores": list(part.scores),
        "analysis": part.analysis,
        "counts": part.counts,
        "fell_back": part.fell_back,
        "attempts": part.attempts,
        "rejections": list(part.rejections),
    }


def part_in_order(part: WirePart, positions: Sequence[int]) -> PartVerdict:
    """The part with what it says of the candidates at `positions`. Raises ValueError where it is not one for each."""
    if not len(part.statuses) == len(part.scores) == len(positions):
        raise ValueError(f"part {part.name!r} has not one status and one score for each candidate")
    statuses, scores = tuple(part.statuses[i] for i in positions), tuple(part.scores[i] for i in positions)
    if any(status.is_scored != (score is not None) for status, score in zip(statuses, scores, strict=True)):
        raise ValueError(f"part {part.name!r} has a status that cannot carry its score")
    return PartVerdict(
        part.name,
        part.weight,
        part.normalise,
        statuses,
        scores,
        part.analysis,
        part.counts,
        part.fell_back,
        part.attempts,
        tuple(part.rejections),
    )
