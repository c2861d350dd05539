"""Several judges' verdicts on a group as one: normalised within the group, then the weighted mean.

Pure, so that a dumped run can be mixed again from its parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from grrm.gqm.grammar import MAX_SCORE
from grrm.gqm.groups import PartVerdict, Status, Verdict
from grrm.rewards.failure_policy import JUDGE_FAILURES

Normalisation = Literal["none", "mean", "std", "rank"]
MIDDLE = MAX_SCORE / 2


def normalised(scores: Sequence[float | None], how: str) -> list[float | None]:
    """The scores of one judge on one group, made comparable with other judges'; each stays within 0 to 10.

        none    s
        mean    5 + s - m, clipped, with m the mean over the candidates that have a score, copies included
        std     5 + (s - m) / d, clipped, with d their standard deviation (over n); 5 where d is 0
        rank    10 times the share of the others that score lower, equal ones counting half; 5 for a single candidate

    Raises KeyError for another `how`.
    """
    return _NORMALISERS[how](scores, [score for score in scores if score is not None])


def _centred(scores: Sequence[float | None], present: Sequence[float], scale: float = 1.0) -> list[float | None]:
    mean = math.fsum(present) / len(present) if present else 0.0
    return [None if s is None else min(MAX_SCORE, max(0.0, MIDDLE + (s - mean) / scale)) for s in scores]


def _standardised(scores: Sequence[float | None], present: Sequence[float]) -> list[float | None]:
    if len(set(present)) < 2:
        return [None if score is None else MIDDLE for score in scores]
    mean = math.fsum(present) / len(present)
    deviation = math.sqrt(math.fsum((score - mean) ** 2 for score in present) / len(present))
    return _centred(scores, present, deviation or 1.0)  # 0 where differences vanish when squared


def _ranked(scores: Sequence[float | None], present: Sequence[float]) -> list[float | None]:
    def height(score: float) -> float:
        lower, equal = sum(other < score for other in present), present.count(score) - 1
        return MAX_SCORE * (lower + equal / 2) / (len(present) - 1) if len(present) > 1 else MIDDLE

    return [None if score is None else height(score) for score in scores]


_NORMALISERS = {
    "none": lambda scores, present: list(scores),
    "mean": _centred,
    "std": _standardised,
    "rank": _ranked,
}


def is_own_fault(status: Status) -> bool:
    """True for the statuses of a candidate that no judge will make usable, whichever judge said so."""
    return not status.is_scored and status is not Status.SINGLE_CANDIDATE and status not in JUDGE_FAILURES


def failed(statuses: Sequence[Status]) -> bool:
    """True where a judge has, through no fault of a candidate's own, not scored all candidates of a group."""
    return any(status in JUDGE_FAILURES for status in statuses)


def counted(part: PartVerdict, *, required: bool) -> PartVerdict:
    """`part` with `counts` set for its group.

    A judge that has nothing to compare never counts. One that failed on any candidate does not count for the whole
    group, whose candidates would otherwise be compared by different judges, unless it is `required`.
    """
    idle = Status.SINGLE_CANDIDATE in part.statuses
    return replace(part, counts=not idle and (required or not failed(part.statuses)))


def mix(parts: Sequence[PartVerdict]) -> Verdict:
    """Combine the verdicts of a mixture's judges on one group; `parts` have their `counts`.

    score = sum of weight * normalised score / sum of weights, over the parts that count. A candidate that one of the
    parts faults has that status and no score. If a part that counts has no score for a candidate, the candidate has
    that part's status; if no part counts, all have the first status with a reason. Raises ValueError without parts.
    """
    if not parts:
        raise ValueError("a mixture of no judges gives no score")
    counting = [part for part in parts if part.counts]
    columns = [normalised(part.scores, part.normalise) for part in counting]
    statuses = tuple(_status(i, parts, counting) for i in range(len(parts[0].statuses)))
    scores = tuple(
        _mean([column[i] for column in columns], counting) if status.is_scored else None
        for i, status in enumerate(statuses)
    )
    analysis = "\n\n".join(f"[{part.name}]\n{part.analysis}" for part in parts if part.analysis)
    return Verdict(
        statuses,
        scores,
        None,
        analysis,
        attempts=sum(part.attempts for part in parts),
        rejections=tuple(reason for part in parts for reason in part.rejections),
        parts=tuple(parts),
    )


def _status(i: int, parts: Sequence[PartVerdict], counting: Sequence[PartVerdict]) -> Status:
    faults = [part.statuses[i] for part in parts if is_own_fault(part.statuses[i])]
    if faults:
        return faults[0]
    said = [part.statuses[i] for part in counting] or [status for part in parts for status in part.statuses]
    unscored = [status for status in said if not status.is_scored and not is_own_fault(status)]
    if unscored:
        return unscored[0]
    return Status.DUPLICATE if all(status is Status.DUPLICATE for status in said) else Status.SCORED


def _mean(scores: Sequence[float | None], parts: Sequence[PartVerdict]) -> float:
    weighted = [part.weight * score for part, score in zip(parts, scores, strict=True) if score is not None]
    return min(MAX_SCORE, math.fsum(weighted) / math.fsum(part.weight for part in parts))


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
    statuses = [status.value for status in part.statuses]
    return asdict(part) | {"statuses": statuses, "scores": list(part.scores), "rejections": list(part.rejections)}


def part_in_order(part: WirePart, positions: Sequence[int]) -> PartVerdict:
    """The part with what it says of the candidates at `positions`. Raises ValueError where it is not one for each."""
    if not len(part.statuses) == len(part.scores) == len(positions):
        raise ValueError(f"part {part.name!r} has not one status and one score for each candidate")
    statuses, scores = tuple(part.statuses[i] for i in positions), tuple(part.scores[i] for i in positions)
    if any(status.is_scored != (score is not None) for status, score in zip(statuses, scores, strict=True)):
        raise ValueError(f"part {part.name!r} has a status that cannot carry its score")
    rejections = tuple(part.rejections)
    return PartVerdict(**{**dict(part), "statuses": statuses, "scores": scores, "rejections": rejections})
