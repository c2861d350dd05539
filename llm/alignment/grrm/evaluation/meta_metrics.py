"""Agreement of a judge's scores with gold ones, beyond the share of pairs in order: one formula and source a function.

A candidate without a gold or a judged score is left out, with every pair of it; `coverage` of the ranking accuracy
reports their share. Undefined values are None. Intervals are at 95 %, groups resampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from grrm.evaluation.bootstrap import Interval, bootstrap_interval, bootstrap_of_sums, bootstrap_share
from grrm.evaluation.candidate_pairs import (
    Floats,
    calibrated_pairs,
    from_row_mean,
    pair_differences,
    scaled,
    tau_b_by_row,
)
from grrm.evaluation.ranking import JudgedGroup, both_scores
from grrm.evaluation.soft_accuracy import scores_in_orders, soft_pairwise_accuracy, soft_sample_accuracy


@dataclass(frozen=True, slots=True)
class MetaScores:
    """Results of `score_meta`; each field is the function of its name, also of `soft_accuracy`, None if undefined.

    `tie_threshold` is the epsilon of `tie_calibrated_accuracy`, in the judge's units; `tokens` the mean of a group.
    """

    correlation: Interval | None
    kendall_tau_b: Interval | None
    tie_calibrated_accuracy: Interval | None
    tie_threshold: float | None
    soft_pairwise_accuracy: float | None
    soft_sample_accuracy: Interval | None
    order_consistency: Interval | None
    tokens: Interval | None


def score_meta(groups: Sequence[JudgedGroup], *, n_resamples: int = 1000, seed: int = 0) -> MetaScores:
    """All metrics of this page over some groups, whose candidates' scores are on one scale."""
    draws: dict[str, Any] = {"n_resamples": n_resamples, "seed": seed}
    calibrated, threshold = tie_calibrated_accuracy(groups, **draws)
    tokens = [float(group.tokens) for group in groups if group.tokens is not None]
    return MetaScores(
        correlation=correlation(groups, **draws),
        kendall_tau_b=kendall_tau_b(groups, **draws),
        tie_calibrated_accuracy=calibrated,
        tie_threshold=threshold,
        soft_pairwise_accuracy=soft_pairwise_accuracy(groups, seed=seed),
        soft_sample_accuracy=soft_sample_accuracy(groups, **draws),
        order_consistency=order_consistency(groups, **draws),
        tokens=bootstrap_interval(tokens, **draws) if tokens else None,
    )


def tie_calibrated_accuracy(
    groups: Sequence[JudgedGroup], *, n_resamples: int = 1000, seed: int = 0
) -> tuple[Interval | None, float | None]:
    """Pairwise accuracy with calibrated ties, and the epsilon >= 0 that calibrates them (Deutsch et al. 2023).

    acc(e) = (C(e) + T(e)) / pairs, over all pairs of candidates of a group that both scored, pairs of equal gold
    included. Two judged scores are tied where they differ by e or less; C counts the pairs of different gold that are
    not tied and in the right order, T those of equal gold that are tied.

    e is the smallest of 0 and all differences that maximises acc, so a judge with finer scores than the gold's is not
    punished for it. It is chosen on these groups, and the interval is that of the accuracy at this e. The paper (arXiv
    2305.14324) also takes the mean of the groups' accuracies; every pair weighs the same in ours, as in
    `score_ranking`.
    """
    pairs = calibrated_pairs(*both_scores(groups), by_source=False)
    if pairs is None:
        return None, None
    right, counted = pairs.right.sum(axis=1), pairs.scored.sum(axis=1)
    return bootstrap_share(right, counted, n_resamples=n_resamples, seed=seed), pairs.threshold


def kendall_tau_b(groups: Sequence[JudgedGroup], *, n_resamples: int = 1000, seed: int = 0) -> Interval | None:
    """Mean over groups of Kendall's tau-b, from -1 to 1: see `tau_b_by_row`.

    A group that gold or judge ties as a whole has no tau-b and is left out.
    """
    taus = tau_b_by_row(*both_scores(groups))
    taus = taus[~np.isnan(taus)]
    return bootstrap_interval(taus, n_resamples=n_resamples, seed=seed) if len(taus) else None


def correlation(
    groups: Sequence[JudgedGroup],
    *,
    rows: Sequence[int] | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
) -> Interval | None:
    """Pearson's correlation of judged and gold scores within groups, pooled over groups.

    r = sum(x y) / sqrt(sum(x^2) sum(y^2)), x and y being a candidate's gold and judged score minus the mean of its
    group's candidates that have both. It measures differences within a group, which make the advantages of
    group-relative RL; differences between groups play no part. Undefined if gold or judge do not vary within any group.

    With `rows`, the row that each group is of, those of one row are resampled together.
    """
    gold_PG, judged_PG = both_scores(groups)
    scored = ~np.isnan(gold_PG) & ~np.isnan(judged_PG)
    if not scored.any():
        return None
    x, y = (from_row_mean(scaled(scores), scored) for scores in (gold_PG, judged_PG))
    sums = [product.sum(axis=1) for product in (x * y, x * x, y * y)]
    if rows is not None:
        units = np.unique(rows, return_inverse=True)[1]
        sums = [np.bincount(units, weights=of_group) for of_group in sums]
    return bootstrap_of_sums(_pearson, *sums, n_resamples=n_resamples, seed=seed)


def order_consistency(groups: Sequence[JudgedGroup], *, n_resamples: int = 1000, seed: int = 0) -> Interval | None:
    """Share of candidate pairs with the same relation (>, <, =) under two orders of the candidates, over all twos.

    Zheng et al. 2023 (arXiv 2306.05685) ask the same of judges of two answers, in both orders. It counts every pair of
    candidates that both orders of a group score, whatever its gold; groups that were judged in one order have none.
    """
    orders = np.sign(pair_differences(scores_in_orders([judgement.orders for judgement in groups])))
    same, both = np.zeros(len(groups)), np.zeros(len(groups))
    for first, second in combinations(orders, 2):
        scored = ~np.isnan(first) & ~np.isnan(second)
        same += (scored & (first == second)).sum(axis=1)
        both += scored.sum(axis=1)
    return bootstrap_share(same, both, n_resamples=n_resamples, seed=seed)


def _pearson(xy: Floats, xx: Floats, yy: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):  # no variance: not defined
        r: Floats = np.clip(xy / (np.sqrt(xx) * np.sqrt(yy)), -1.0, 1.0)
    return r
