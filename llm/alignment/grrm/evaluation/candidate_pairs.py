"""Scores as arrays [P, G], a row per group or source and a column per candidate, NaN for none; and pairs of candidates.

What is compared are the candidates of a row that have both scores. Pairs [P, K] of G candidates come in the order
(0, 1), (0, 2), ..., (1, 2), ....
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grrm.evaluation.bootstrap import Interval, bootstrap_interval

Scores = Sequence[float | None]
Floats = NDArray[np.float64]
Indexes = NDArray[np.int64]
Mask = NDArray[np.bool_]
_LARGEST = np.finfo(np.float64).max
_ROUNDING = 1e-12  # of a sum of weights: thresholds that gain the same but for rounding count as equal


def score_array(lists: Sequence[Scores]) -> Floats:
    """The scores [P, G] of groups, G being the size of the largest; NaN for None, and where a group has fewer."""
    scores_PG = np.full((len(lists), max(map(len, lists), default=0)), np.nan)
    for row, scores in enumerate(lists):
        scores_PG[row, : len(scores)] = [np.nan if score is None else score for score in scores]
    return scores_PG


def pair_differences(scores_PG: Floats) -> Floats:
    """The score of each pair's first candidate minus the second's [..., P, K]; one too large is the largest float."""
    first, second = np.triu_indices(scores_PG.shape[-1], 1)
    with np.errstate(over="ignore"):
        differences: Floats = np.clip(scores_PG[..., first] - scores_PG[..., second], -_LARGEST, _LARGEST)
    return differences


def both_differences(gold_PG: Floats, judged_PG: Floats) -> tuple[Floats, Floats, Mask]:
    """`pair_differences` of gold and of a judge, and which pairs have both [P, K]."""
    gold, judged = pair_differences(gold_PG), pair_differences(judged_PG)
    return gold, judged, ~np.isnan(gold) & ~np.isnan(judged)


def scaled(scores: Floats) -> Floats:
    """The scores over the largest absolute one, NaN staying NaN: for what no scale changes; nothing overflows then."""
    largest = np.max(np.abs(scores), initial=0.0, where=~np.isnan(scores))
    return scores / largest if largest > 0 else scores


def from_row_mean(scores: Floats, scored: Mask) -> Floats:
    """Scores minus the mean of their row, 0 where not `scored`, and exactly 0 in a row whose scores are all equal."""
    if not scored.any():
        return np.zeros(scores.shape)
    rows = np.arange(len(scores))
    shifted = np.where(scored, scores - scores[rows, scored.argmax(axis=1)][:, None], 0.0)
    means = shifted.sum(axis=1, keepdims=True) / np.maximum(scored.sum(axis=1, keepdims=True), 1)
    deviations: Floats = np.where(scored, shifted - means, 0.0)
    return deviations


def ratio(tops: Floats, bottoms: Floats) -> Floats:
    """Quotients, NaN where the denominator is 0."""
    quotients: Floats = np.divide(tops, bottoms, out=np.full(np.shape(tops), np.nan), where=bottoms > 0)
    return quotients


def tau_b_by_row(gold_PG: Floats, judged_PG: Floats) -> Floats:
    """Kendall's tau-b (C - D) / sqrt(P1 P2) of each row [P] (Kendall 1945), NaN where gold or judge ties all of it.

    C and D count the pairs in the same and in opposite order, P1 and P2 those of different gold and judged scores.
    """
    gold, judged, scored = both_differences(gold_PG, judged_PG)
    agreement = np.where(scored, np.sign(gold) * np.sign(judged), 0.0).sum(axis=1)
    untied = [((differences != 0) & scored).sum(axis=1) for differences in (gold, judged)]
    return ratio(agreement, np.sqrt(untied[0] * untied[1]))


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


def calibrated_pairs(gold_PG: Floats, judged_PG: Floats, *, by_source: bool = True) -> CalibratedPairs | None:
    """acc_eq of Deutsch et al. 2023 (arXiv 2305.14324), grouped by source, or else over all pairs.

    acc_eq(e) = mean over sources of (C + T) / pairs: C counts pairs that both order alike and whose judged scores are
    more than e apart, T pairs of equal gold whose judged scores are at most e apart. e maximises it over 0 and all
    differences of judged scores, the smallest of equals. None without a pair.
    """
    gold, judged, scored = both_differences(gold_PG, judged_PG)
    if not scored.any():
        return None
    n_pairs = scored.sum(axis=1, keepdims=True)
    weights = 1 / np.maximum(n_pairs, 1) / (n_pairs > 0).sum() if by_source else np.ones(n_pairs.shape)
    gold_tied, ordered, distance = gold == 0, np.sign(gold) * np.sign(judged) > 0, np.abs(judged)
    columns = (distance, gold_tied, ordered, np.broadcast_to(weights, scored.shape))
    threshold = _calibrated_threshold(*(values[scored] for values in columns))
    right = scored & np.where(distance <= threshold, gold_tied, ordered)
    return CalibratedPairs(right, scored, ratio(right.sum(axis=1), n_pairs[:, 0]), threshold)


def _calibrated_threshold(distance: Floats, gold_tied: Mask, ordered: Mask, weights: Floats) -> float:
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
