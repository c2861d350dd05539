"""Clusters of judges whose difference in acc_eq chance explains, as WMT's metrics task has them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from grrm.evaluation.candidate_pairs import Floats
from grrm.evaluation.human_gold.agreement import CalibratedPairs
from grrm.evaluation.soft_accuracy import p_values

SIGNIFICANCE = 0.05
_VALUES_PER_BLOCK = 1 << 23  # bounds the memory of the compared pairs


def significance_clusters(judges: Mapping[str, CalibratedPairs], *, n_permutations: int = 1000) -> dict[str, int]:
    """Return the cluster of each judge, from 1: no judge of a cluster is significantly better than another of it.

    Judges in the order of their accuracy; a new cluster begins with the first that any of the current cluster is better
    than with p <= 0.05, one-sided. The test permutes which of two judges gets which result on each pair of
    candidates, at the judges' own thresholds (Deutsch et al. 2021, arXiv 2104.00054; on pairs as mt-metrics-eval
    does), over the pairs that both scored.
    """
    ranked = sorted(judges, key=lambda name: -judges[name].accuracy)
    twos = [(better, worse) for at, better in enumerate(ranked) for worse in ranked[at + 1 :]]
    n_values = next(iter(judges.values())).right.size if judges else 1
    per_block = max(1, _VALUES_PER_BLOCK // n_values)
    p_of: dict[tuple[str, str], float] = {}
    for start in range(0, len(twos), per_block):
        block = twos[start : start + per_block]
        columns = np.stack([_differences(judges[better], judges[worse]) for better, worse in block], axis=1)
        informative = columns.any(axis=1)
        p_of |= dict(zip(block, p_values(columns[informative], n_permutations).tolist(), strict=True))
    clusters: dict[str, int] = {}
    current: list[str] = []
    for name in ranked:
        if any(p_of[better, name] <= SIGNIFICANCE for better in current):
            current = []
        current.append(name)
        clusters[name] = max(clusters.values(), default=0) + (len(current) == 1)
    return clusters


def _differences(better: CalibratedPairs, worse: CalibratedPairs) -> Floats:
    """Each pair's part [P * K] of the difference of the accuracies: 0 where either judge did not score it."""
    common = better.scored & worse.scored
    n_pairs = np.maximum(common.sum(axis=1, keepdims=True), 1)
    differences: Floats = np.where(common, (better.right.astype(np.float64) - worse.right) / n_pairs, 0.0)
    return differences.ravel()
