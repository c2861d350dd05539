"""Judging each distinct translation once, or as often as it was sampled, and giving every copy the same score."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grrm.gqm.groups import Group, Status, Verdict
from grrm.judges.outcomes import Outcome, ranking_of


@dataclass(frozen=True, slots=True)
class DistinctCandidates:
    """A group's usable translations, first seen first, without repetition or with all copies (`find_shown`).

    `members[k]` are the positions in `group.candidates` that `texts[k]` stands for; `excluded` maps every other
    position to the status that keeps it from being judged.
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


def find_shown(
    group: Group, is_safe: Callable[[str], bool] | None = None, room_for_copies: int = 0
) -> DistinctCandidates:
    """`find_distinct`, but where all copies fit into `room_for_copies` candidates every copy for itself, in order.

    How often a policy writes the same is evidence that a judge who sees every translation once does not have.
    """
    distinct = find_distinct(group, is_safe)
    positions = sorted(position for members in distinct.members for position in members)
    if len(positions) > room_for_copies or len(distinct.texts) < 2:
        return distinct
    texts = {
        position: text for text, of_text in zip(distinct.texts, distinct.members, strict=True) for position in of_text
    }
    return DistinctCandidates(
        tuple(texts[position] for position in positions),
        tuple((position,) for position in positions),
        distinct.excluded,
    )


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
    outcomes: Sequence[Outcome],
    *,
    tiers: Sequence[Sequence[int]] | None = None,
    analysis: str = "",
    attempts: int = 0,
) -> Verdict:
    """The group's verdict from one outcome per translation in `distinct`: a score, or the status of its absence.

    Later copies of a scored translation become DUPLICATE with the same score, the mean where copies were judged for
    themselves. `tiers` ranks indexes into `distinct.texts`, best first; copies share their tier, and where they were
    judged for themselves the means are what ranks.
    """
    if len(set(distinct.texts)) < len(distinct.texts):
        distinct, outcomes = _merged(distinct, outcomes)
        tiers = None if tiers is None else ranking_of(outcomes)
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


def _merged(shown: DistinctCandidates, outcomes: Sequence[Outcome]) -> tuple[DistinctCandidates, list[Outcome]]:
    """Copies that were judged for themselves as one translation: its mean score, or its first status without any."""
    positions: dict[str, list[int]] = {}
    found: dict[str, list[Outcome]] = {}
    for text, members, outcome in zip(shown.texts, shown.members, outcomes, strict=True):
        positions.setdefault(text, []).extend(members)
        found.setdefault(text, []).append(outcome)
    means: list[Outcome] = []
    for of_text in found.values():
        scores = [outcome for outcome in of_text if not isinstance(outcome, Status)]
        means.append(math.fsum(scores) / len(scores) if scores else of_text[0])
    return DistinctCandidates(tuple(positions), tuple(map(tuple, positions.values())), shown.excluded), means


def _tier_ids(group: Group, distinct: DistinctCandidates, tier: Sequence[int]) -> tuple[str, ...]:
    positions = sorted(position for index in tier for position in distinct.members[index])
    return tuple(group.candidates[position].candidate_id for position in positions)
