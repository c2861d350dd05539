"""Agreement of scores [P, G] with people's: one row per source, one column per system, NaN where there is no score.

The arithmetic is that of WMT's metrics task (google-research/mt-metrics-eval), where gold and judge scored a candidate.
Grouped by source a value is the mean over the sources in which it is defined, ungrouped it is over all candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grrm.evaluation.bootstrap import Interval, bootstrap_interval
from grrm.evaluation.candidate_pairs import Floats, Indexes, Mask, scaled
from grrm.evaluation.meta_metrics import calibrated_threshold
from grrm.evaluation.soft_accuracy import soft_accuracy_of_systems

DRAWS = 4  # the seed with which mt-metrics-eval draws permutations of systems


@dataclass(frozen=True, slots=True)
class CalibratedPairs:
    """The pairs [P, K] of candidates of one source at the threshold that calibrates ties.

    `right` and `scored` are flags, `accuracy_P` the share of right pairs of each source, NaN where it has none.
    """

    right: Mask
    scored: Mask
    accuracy_P: Floats
    threshold: float

    @property
    def accuracy(self) -> float:
        """acc_eq: the mean over the sources that have a pair."""
        return float(np.nanmean(self.accuracy_P))

    def interval(self, n_resamples: int) -> Interval:
        """acc_eq with its interval over sources, the threshold staying what it is."""
        return bootstrap_interval(self.accuracy_P[~np.isnan(self.accuracy_P)], n_resamples=n_resamples)


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
    tau_P, tau = tau_b_by_source(gold_PG, judged_PG), tau_b(gold_PG[scored], judged_PG[scored])
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


def calibrated_pairs(gold_PG: Floats, judged_PG: Floats) -> CalibratedPairs | None:
    """acc_eq of Deutsch et al. 2023 (arXiv 2305.14324), grouped by source.

    acc_eq(e) = mean over sources of (C + T) / pairs: C counts pairs that both order alike and whose judged scores are
    more than e apart, T pairs of equal gold whose judged scores are at most e apart. e maximises it over 0 and all
    differences of judged scores, the smallest of equals. None without a pair.
    """
    first, second = np.triu_indices(gold_PG.shape[1], 1)
    gold, judged = (scores[:, first] - scores[:, second] for scores in (gold_PG, judged_PG))
    scored = ~np.isnan(gold + judged)
    if not scored.any():
        return None
    n_pairs = scored.sum(axis=1, keepdims=True)
    weights = np.broadcast_to(1 / np.maximum(n_pairs, 1), scored.shape) / (n_pairs > 0).sum()
    gold_tied, ordered, distance = gold == 0, np.sign(gold) * np.sign(judged) > 0, np.abs(judged)
    threshold = calibrated_threshold(*(values[scored] for values in (distance, gold_tied, ordered, weights)))
    right = scored & np.where(distance <= threshold, gold_tied, ordered)
    return CalibratedPairs(right, scored, _ratio(right.sum(axis=1), n_pairs[:, 0]), threshold)


def tau_b_by_source(gold_PG: Floats, judged_PG: Floats) -> Floats:
    """Kendall's tau-b (C - D) / sqrt(P1 P2) of each source [P], NaN where gold or judge ties all of its candidates."""
    first, second = np.triu_indices(gold_PG.shape[1], 1)
    gold, judged = (np.sign(scores[:, first] - scores[:, second]) for scores in (gold_PG, judged_PG))
    scored = ~np.isnan(gold + judged)
    untied = [((signs != 0) & scored).sum(axis=1) for signs in (gold, judged)]
    return _ratio(np.where(scored, gold * judged, 0).sum(axis=1), np.sqrt(untied[0] * untied[1]))


def pearson_by_row(first: Floats, second: Floats) -> Floats:
    """Pearson's r of each row [rows] over the columns that both have, NaN where one of the two does not vary."""
    scored = ~np.isnan(first + second)
    x, y = (_from_row_mean(scores, scored) for scores in (first, second))
    return _ratio((x * y).sum(axis=1), np.sqrt((x * x).sum(axis=1)) * np.sqrt((y * y).sum(axis=1)))


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


def _from_row_mean(scores: Floats, scored: Mask) -> Floats:
    """Scores minus the mean of their row, 0 where not `scored`, and exactly 0 in a row whose scores are all equal."""
    if not scored.any():
        return np.zeros(scores.shape)
    rows = np.arange(len(scores))
    shifted = np.where(scored, scores - scores[rows, scored.argmax(axis=1)][:, None], 0.0)
    means = shifted.sum(axis=1, keepdims=True) / np.maximum(scored.sum(axis=1, keepdims=True), 1)
    deviations: Floats = np.where(scored, shifted - means, 0.0)
    return deviations


def _system_means(scores: Floats, scored: Mask) -> Floats:
    """Mean score of each system [1, G] over the sources in which gold and judge scored it."""
    return _ratio(np.where(scored, scores, 0.0).sum(axis=0), scored.sum(axis=0))[None]


def _ratio(tops: Floats, bottoms: Floats) -> Floats:
    ratio: Floats = np.divide(tops, bottoms, out=np.full(len(tops), np.nan), where=bottoms > 0)
    return ratio


def _mean(values: Floats) -> float | None:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else None
