"""Rankings as text (`B > A = D > C`) and as tiers, best first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Tiers = tuple[tuple[int, ...], ...]


def tiers_of(scores: Sequence[float]) -> Tiers:
    """Indexes grouped by equal score, best first, ascending inside a tier. No scores give no tiers."""
    by_score: dict[float, list[int]] = {}
    for index, score in enumerate(scores):
        by_score.setdefault(score, []).append(index)
    return tuple(tuple(by_score[score]) for score in sorted(by_score, reverse=True))


def ranking_line(scores_by_id: Mapping[str, float]) -> str:
    """The ranking that scores imply: `B > A = D > C`, ties in alphabetical order."""
    ids = sorted(scores_by_id)
    tiers = tiers_of([scores_by_id[candidate_id] for candidate_id in ids])
    return " > ".join(" = ".join(ids[index] for index in tier) for tier in tiers)


def ranking_to_scores(ranking: str) -> dict[str, int]:
    """Ordinal scores of a ranking line: the worst tier is 0, each better tier one more. Ids are not checked."""
    tiers = ranking.split(">")
    return {
        candidate_id.strip(): height for height, tier in enumerate(reversed(tiers)) for candidate_id in tier.split("=")
    }
