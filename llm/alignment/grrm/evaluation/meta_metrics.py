"""Agreement of a judge's scores with gold ones, beyond the share of pairs in order: one formula and source a function.

A candidate without a gold or a judged score is left out, with every pair of it; `coverage` of the ranking accuracy
reports their share. Undefined values are None. Intervals are at 95 %, groups resampled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from grrm.evaluation.bootstrap import Interval, bootstrap_interval, bootstrap_of_sums, bootstrap_ratio
from grrm.evaluation.candidate_pairs import (
    Floats,
    Indexes,
    Mask,
    flat_scores,
    order_differences,
    pair_differences,
    scaled,
    sums_by_group,
)
from grrm.evaluation.ranking import JudgedGroup, score_ranking
from grrm.evaluation.soft_accuracy import soft_pairwise_accuracy, soft_sample_accuracy
from grrm.gqm.groups import Verdict

_ROUNDING = 1e-12  # of a sum of weights: thresholds that gain the same but for rounding count as equal


def calibrated_threshold(distance: Floats, gold_tied: Mask, ordered: Mask, weights: Floats) -> float:
    """Return the smallest e of 0 and all distances that maximises the weight of the pairs that are right.

    Pairs [pairs] are tied where their distance, the absolute difference of their scores, is e or less; then a pair of
    equal gold is right. All others are right where they are `ordered` as gold has them. One sort and one sum replace
    the search over thresholds.
    """
    by_distance = np.argsort(distance)
    gains = (weights * (gold_tied.astype(np.float64) - ordered))[by_distance]  # of tying one more pair
    candidates = np.unique(np.append(distance, 0.0))
    n_tied = np.searchsorted(distance[by_distance], candidates, side="right")
    gain = np.append(0.0, np.cumsum(gains))[n_tied]
    return float(candidates[int(np.argmax(gain >= gain.max() - _ROUNDING * weights.sum()))])


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
    draws = {"n_resamples": n_resamples, "seed": seed}
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
    group, gold, judged = _scored_pairs(groups)
    if not len(group):
        return None, None
    distance, gold_tied, ordered = np.abs(judged), gold == 0, gold * np.sign(judged) > 0
    threshold = calibrated_threshold(distance, gold_tied, ordered, np.ones(len(distance)))
    right = np.where(distance <= threshold, gold_tied, ordered)
    earned, counted = (sums_by_group(group, flags, len(groups)) for flags in (right, np.ones(len(group))))
    used = counted > 0
    return bootstrap_ratio(earned[used], counted[used], n_resamples=n_resamples, seed=seed), threshold


def kendall_tau_b(groups: Sequence[JudgedGroup], *, n_resamples: int = 1000, seed: int = 0) -> Interval | None:
    """Mean over groups of Kendall's tau-b = (C - D) / sqrt(P1 * P2), from -1 to 1 (Kendall 1945).

    C and D count a group's pairs in the same and in opposite order, P1 and P2 those of different gold and of different
    judged scores. A group that gold or judge ties as a whole has no tau-b and is left out.
    """
    group, gold, judged = _scored_pairs(groups)
    signs = np.sign(gold), np.sign(judged)
    agreement = sums_by_group(group, signs[0] * signs[1], len(groups))
    untied = np.prod([sums_by_group(group, sign != 0, len(groups)) for sign in signs], axis=0)
    defined = untied > 0
    if not defined.any():
        return None
    taus = agreement[defined] / np.sqrt(untied[defined])
    return bootstrap_interval(taus, n_resamples=n_resamples, seed=seed)


def correlation(groups: Sequence[JudgedGroup], *, n_resamples: int = 1000, seed: int = 0) -> Interval | None:
    """Pearson's correlation of judged and gold scores within groups, pooled over groups.

    r = sum(x y) / sqrt(sum(x^2) sum(y^2)), x and y being a candidate's gold and judged score minus the mean of its
    group's candidates that have both. It measures differences within a group, which make the advantages of
    group-relative RL; differences between groups play no part. Undefined if gold or judge do not vary within any group.
    """
    group, gold = flat_scores([judgement.gold for judgement in groups])
    _, judged = flat_scores([judgement.judged for judgement in groups])
    scored = ~np.isnan(gold) & ~np.isnan(judged)
    if not scored.any():
        return None
    x, y = (_from_group_mean(group[scored], scaled(scores[scored])) for scores in (gold, judged))
    sums = [sums_by_group(group[scored], product, len(groups)) for product in (x * y, x * x, y * y)]
    return bootstrap_of_sums(_pearson, *sums, n_resamples=n_resamples, seed=seed)


def order_consistency(groups: Sequence[JudgedGroup], *, n_resamples: int = 1000, seed: int = 0) -> Interval | None:
    """Share of candidate pairs with the same relation (>, <, =) under two orders of the candidates, over all twos.

    Zheng et al. 2023 (arXiv 2306.05685) ask the same of judges of two answers, in both orders. It counts every pair of
    candidates that both orders of a group score, whatever its gold; groups that were judged in one order have none.
    """
    group, orders = order_differences(
        [judgement.orders for judgement in groups], [len(judgement.gold) for judgement in groups]
    )
    same, both = np.zeros(len(groups)), np.zeros(len(groups))
    for first, second in combinations(np.sign(orders), 2):
        scored = ~np.isnan(first) & ~np.isnan(second)
        same += sums_by_group(group, scored & (first == second), len(groups))
        both += sums_by_group(group, scored, len(groups))
    used = both > 0
    return bootstrap_ratio(same[used], both[used], n_resamples=n_resamples, seed=seed) if used.any() else None


def _scored_pairs(groups: Sequence[JudgedGroup]) -> tuple[Indexes, Floats, Floats]:
    """Group, gold and judged difference of every pair that has both [pairs]."""
    group, gold = pair_differences([judgement.gold for judgement in groups])
    _, judged = pair_differences([judgement.judged for judgement in groups])
    scored = ~np.isnan(gold) & ~np.isnan(judged)
    return group[scored], gold[scored], judged[scored]


def _from_group_mean(group: Indexes, scores: Floats) -> Floats:
    """Scores minus the mean of their group [candidates]: exactly 0 where all of a group are equal."""
    _, first, member = np.unique(group, return_index=True, return_inverse=True)
    shifted = scores - scores[first][member]
    deviations: Floats = shifted - (np.bincount(member, weights=shifted) / np.bincount(member))[member]
    return deviations


def _pearson(xy: Floats, xx: Floats, yy: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):  # no variance: not defined
        r: Floats = np.clip(xy / (np.sqrt(xx) * np.sqrt(yy)), -1.0, 1.0)
    return r


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of two judges on the same groups; None if nothing can be compared.

    `kendall_tau_b` and `correlation` are within groups, `same_order` is the share of pairs with the same relation
    (above, below, equal), `coverage` the share of the pairs scored by the first that the second scored as well.
    """

    kendall_tau_b: Interval | None
    same_order: Interval | None
    correlation: Interval | None
    coverage: float | None


def agreement(records: Iterable[Mapping[str, Any]], verdicts: Sequence[Verdict]) -> Agreement:
    """Agreement of the verdicts with the scores in the dump."""
    groups = [
        JudgedGroup(
            f"{record['src_lang']}-{record['trg_lang']}",
            [candidate["score"] for candidate in record["candidates"]],
            verdict.scores,
        )
        for record, verdict in zip(records, verdicts, strict=True)
    ]
    ranking = score_ranking(groups, gold_ties="count")
    return Agreement(kendall_tau_b(groups), ranking.accuracy, correlation(groups), ranking.coverage)
