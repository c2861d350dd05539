"""Judging each distinct translation once and giving every copy the same score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grrm.gqm.groups import Group, Status, Verdict


@dataclass(frozen=True, slots=True)
class DistinctCandidates:
    """A group's usable translations without repetition, first seen first.

    `members[k]` are the positions in `group.candidates` that share `texts[k]`; `excluded` maps every other position
    to the status that keeps it from being judged.
    """

    texts: tuple[str, ...]
    members: tuple[tuple[int, ...], ...]
    excluded: dict[int, Status]


def find_distinct(group: Group, is_safe: Callable[[str], bool] | None = None) -> DistinctCandidates:
    """Sort a group's candidates into distinct translations and unusable ones (nothing extracted, or not safe)."""
    members: dict[str, list[int]] = {}
    excluded: dict[int, Status] = {}
    for position, candidate in enumerate(group.candidates):
        if candidate.translation is None:
            excluded[position] = Status.UNPARSABLE_CANDIDATE
        elif is_safe is not None and not is_safe(candidate.translation):
            excluded[position] = Status.UNSAFE_CANDIDATE
        else:
            members.setdefault(candidate.translation, []).append(position)
    return DistinctCandidates(tuple(members), tuple(tuple(positions) for positions in members.values()), excluded)


def without_longest(distinct: DistinctCandidates) -> DistinctCandidates:
    """The same without the translation that takes most bytes in UTF-8, whose copies become TOO_LONG.

    Bytes come closer to tokens than characters do. Between equals it is the one that sorts last, so that the choice
    does not depend on the order. Needs at least one translation.
    """
    sizes = [(len(text.encode("utf-8", "surrogatepass")), text) for text in distinct.texts]
    longest = sizes.index(max(sizes))
    excluded = distinct.excluded | dict.fromkeys(distinct.members[longest], Status.TOO_LONG)
    return DistinctCandidates(
        distinct.texts[:longest] + distinct.texts[longest + 1 :],
        distinct.members[:longest] + distinct.members[longest + 1 :],
        excluded,
    )


def spread_verdict(
    group: Group,
    distinct: DistinctCandidates,
    outcomes: Sequence[float | Status],
    *,
    tiers: Sequence[Sequence[int]] | None = None,
    analysis: str = "",
    attempts: int = 0,
) -> Verdict:
    """The group's verdict from one outcome per distinct translation: a score, or the status of its absence.

    Later copies of a scored translation become DUPLICATE with the same score. `tiers` ranks indexes into
    `distinct.texts`, best first; copies share their tier.
    """
    statuses = [distinct.excluded.get(position, Status.SCORED) for position in range(len(group.candidates))]
    scores: list[float | None] = [None] * len(group.candidates)
    for positions, outcome in zip(distinct.members, outcomes, strict=True):
        for position in positions:
            if isinstance(outcome, Status):
                statuses[position] = outcome
            else:
                scores[position] = outcome
                statuses[position] = Status.SCORED if position == positions[0] else Status.DUPLICATE
    ranking = None if tiers is None else tuple(_tier_ids(group, distinct, tier) for tier in tiers)
    return Verdict(tuple(statuses), tuple(scores), ranking, analysis, attempts)


def _tier_ids(group: Group, distinct: DistinctCandidates, tier: Sequence[int]) -> tuple[str, ...]:
    positions = sorted(position for index in tier for position in distinct.members[index])
    return tuple(group.candidates[position].candidate_id for position in positions)
