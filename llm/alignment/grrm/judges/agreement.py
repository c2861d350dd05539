"""How far several scorings of the same candidates agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations


def kendall_tau_b(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Rank correlation with ties: (C - D) / sqrt(P1 * P2), from -1 to 1 (Kendall 1945, tau-b).

    C and D count the pairs of candidates that both scorings order alike and oppositely, P1 and P2 those that the first
    and the second do not tie. None where a scoring ties everything, or has fewer than two candidates: there is no
    order to compare. Raises ValueError on different lengths.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} scores cannot be compared with {len(second)}")
    signs = [(_sign(first[i] - first[k]), _sign(second[i] - second[k])) for i, k in combinations(range(len(first)), 2)]
    untied = sum(a != 0 for a, _ in signs) * sum(b != 0 for _, b in signs)
    return sum(a * b for a, b in signs) / math.sqrt(untied) if untied else None


def mean_agreement(scores_RN: Sequence[Sequence[float]]) -> float | None:
    """Mean tau-b over all pairs of scorings (rows); pairs without a tau-b are left out, None if there is no other."""
    taus = [kendall_tau_b(first, second) for first, second in combinations(scores_RN, 2)]
    defined = [tau for tau in taus if tau is not None]
    return math.fsum(defined) / len(defined) if defined else None


def _sign(difference: float) -> int:
    return (difference > 0) - (difference < 0)
