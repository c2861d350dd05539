"""The threshold below which two scores of a judge count as equal (Deutsch et al. 2023, arXiv 2305.14324)."""

from __future__ import annotations

import numpy as np

from grrm.evaluation.candidate_pairs import Floats, Mask

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
