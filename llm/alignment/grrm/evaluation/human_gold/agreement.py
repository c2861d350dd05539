"""Agreement of scores [P, G] with people's: one row per source, one column per system, NaN where there is no score.

The arithmetic is that of WMT's metrics task (google-research/mt-metrics-eval), where gold and judge scored a candidate.
Grouped by source a value is the mean over the sources in which it is defined, ungrouped it is over all candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grrm.evaluation.candidate_pairs import (
    CalibratedPairs,
    Floats,
    Indexes,
    Mask,
    calibrated_pairs,
    from_row_mean,
    ratio,
    scaled,
    tau_b_by_row,
)
from grrm.evaluation.soft_accuracy import soft_accuracy_of_systems

DRAWS = 4  # the seed with which mt-metrics-eval draws permutations of systems


@dataclass(frozen=True, slots=True)
class Agreement:
    """Metrics of one judge on some sources, None where one is not defined.

    `tie_calibrated_accuracy` is acc_eq, with its 95 % `interval` and `tie_threshold` as its epsilon; `*_by_source` are
    grouped by source, `kendall_tau_b` and `pearson` are not; `soft_pairwise_accuracy` and `pearson_of_systems` compare
    systems; `coverage` is the share of candidates with gold that the judge scored.
    """

    tie_calibrated_accuracy: float | None
    interval: tuple[float, float] | None
    tie_threshold: float | None
    kendall_tau_b_by_source: float | None
    pearson_by_source: float | None
    kendall_tau_b: float | None
    pearson: float | None
    soft_pairwise_accuracy: float | None
    pearson_of_systems: float | None
    coverage: float | None


def agreement(
    gold_PG: Floats, judged_PG: Floats, *, n_resamples: int = 1000, pairs: CalibratedPairs | None = None
) -> Agreement:
    """Compare a judge's scores with gold; intervals resample sources, and as many permutations compare systems.

    `pairs` are the `calibrated_pairs` of the two, where they are there already.
    """
    pairs = pairs or calibrated_pairs(gold_PG, judged_PG)
    rated, scored = ~np.isnan(gold_PG), ~np.isnan(gold_PG + judged_PG)
    tau_P, tau = tau_b_by_row(gold_PG, judged_PG), tau_b(gold_PG[scored], judged_PG[scored])
    gold_PG, judged_PG = scaled(gold_PG), scaled(judged_PG)
    resampled = None if pairs is None else pairs.interval(n_resamples)
    return Agreement(
        tie_calibrated_accuracy=None if resampled is None else resampled.mean,
        interval=None if resampled is None else (resampled.low, resampled.high),
        tie_threshold=None if pairs is None else pairs.threshold,
        kendall_tau_b_by_source=_mean(tau_P),
        pearson_by_source=_mean(pearson_by_row(gold_PG, judged_PG)),
        kendall_tau_b=tau,
        pearson=_mean(pearson_by_row(gold_PG[scored][None], judged_PG[scored][None])),
        soft_pairwise_accuracy=soft_accuracy_of_systems(gold_PG, judged_PG, n_permutations=n_resamples, seed=DRAWS),
        pearson_of_systems=_mean(pearson_by_row(*(_system_means(scores, scored) for scores in (gold_PG, judged_PG)))),
        coverage=float(scored.sum() / rated.sum()) if rated.any() else None,
    )


def pearson_by_row(first: Floats, second: Floats) -> Floats:
    """Pearson's r of each row [rows] over the columns that both have, NaN where one of the two does not vary."""
    scored = ~np.isnan(first + second)
    x, y = (from_row_mean(scores, scored) for scores in (first, second))
    return ratio((x * y).sum(axis=1), np.sqrt((x * x).sum(axis=1)) * np.sqrt((y * y).sum(axis=1)))


def tau_b(gold: Floats, judged: Floats) -> float | None:
    """Kendall's tau-b of two lists of n scores in O(n log n) (Knight 1966); None where one of them does not vary."""
    x, y = (np.unique(scores, return_inverse=True)[1] for scores in (gold, judged))
    if not len(x) or not x.any() or not y.any():
        return None
    by_both = np.lexsort((y, x))
    n_pairs = len(x) * (len(x) - 1) // 2
    tied_x, tied_y, tied_both = _tied_pairs(x), _tied_pairs(y), _tied_pairs(x * (int(y.max()) + 1) + y)
    discordant = _inversions(y[by_both])
    concordant = n_pairs - tied_x - tied_y + tied_both - discordant
    return float((concordant - discordant) / np.sqrt(n_pairs - tied_x) / np.sqrt(n_pairs - tied_y))


def _inversions(ranks: Indexes) -> int:
    """Number of pairs of positions i < j with ranks[i] > ranks[j], from the highest bit in which the two differ."""
    total, blocks = 0, np.zeros(len(ranks), np.int64)  # the bits above, sorted; within a block in the first order
    for bit in reversed(range(int(ranks.max()).bit_length())):
        ones = ranks >> bit & 1
        starts = np.flatnonzero(np.append(True, blocks[1:] != blocks[:-1]))
        before = np.cumsum(ones) - ones
        within = before - np.repeat(before[starts], np.diff(np.append(starts, len(ranks))))
        total += int(within[ones == 0].sum())
        order = np.argsort(ranks >> bit, kind="stable")
        ranks = ranks[order]
        blocks = ranks >> bit
    return total


def _tied_pairs(values: Indexes) -> int:
    counts = np.unique(values, return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())


def _system_means(scores: Floats, scored: Mask) -> Floats:
    """Mean score of each system [1, G] over the sources in which gold and judge scored it."""
    return ratio(np.where(scored, scores, 0.0).sum(axis=0), scored.sum(axis=0))[None]


def _mean(values: Floats) -> float | None:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else None
