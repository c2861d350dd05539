"""What a judge says of one translation, and the order that its scores imply."""

from __future__ import annotations

from collections.abc import Sequence

from grrm.gqm.groups import Status
from grrm.gqm.rankings import Tiers, tiers_of

Outcome = float | Status  # a score, or the status of its absence


def ranking_of(outcomes: Sequence[Outcome]) -> Tiers | None:
    """The tiers that the scores among the outcomes imply, as indexes, best first; None without any score."""
    scored = [k for k, outcome in enumerate(outcomes) if not isinstance(outcome, Status)]
    tiers = tiers_of([float(outcomes[k]) for k in scored])
    return tuple(tuple(scored[i] for i in tier) for tier in tiers) or None
