"""The loss of reward models: scores against gold, both as differences within a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import paddle
import paddle.nn.functional as F
from numpy.typing import ArrayLike, NDArray

from grrm.training.gold_groups import LEAST_DIFFERENCE


def group_loss(
    scores_R: paddle.Tensor,
    gold_R: ArrayLike,
    group_sizes: Sequence[int],
    *,
    gold_unit: float = 10.0,
    squared_weight: float = 0.2,
    denominators: Mapping[str, float] | None = None,
) -> paddle.Tensor:
    """Bradley-Terry over pairs of different gold, and `squared_weight` times the squared error of centred scores.

    With scores s, gold g in units of `gold_unit` (10 points of chrF: a score then is a reward as it is) and groups c:

        mean over pairs i, j of a group with g_i - g_j > LEAST_DIFFERENCE of log(1 + exp(s_j - s_i))
        + squared_weight * mean over candidates of ((s_i - mean_c s) - (g_i - mean_c g))^2

    Bradley and Terry 1952, as InstructGPT's reward model (arXiv:2203.02155, formula 1): that is two candidates and a
    `squared_weight` of 0. Groups lie one after the other; a batch's pairs weigh the same whatever their group.

    A candidate whose gold is NaN takes part in nothing, means included. A group with gold for one candidate adds zero
    to the sum of squares and counts in no mean; where a mean is over nothing it is 0, with a gradient of 0.

    `denominators`, counted by `count_pairs` over more groups than these, replace the numbers that the means divide by:
    the losses of parts of a batch then add up to the loss of the batch. Raises ValueError where sizes do not fit.
    """
    pairs = _Pairs.of(gold_R, group_sizes, gold_unit)
    if scores_R.shape != [sum(group_sizes)]:
        raise ValueError(f"{scores_R.shape} scores for {sum(group_sizes)} candidates")
    if not len(pairs.first_K):
        return scores_R.sum() * 0.0
    counts = denominators or pairs.counts()
    scores_R, gold_K = scores_R.astype("float32"), pairs.gold_K
    first_K, second_K = paddle.to_tensor(pairs.first_K), paddle.to_tensor(pairs.second_K)
    ahead_K = paddle.gather(scores_R, first_K) - paddle.gather(scores_R, second_K)
    share_K = pairs.differs_K / max(counts["pairs"], 1.0)
    loss = (F.softplus(-ahead_K * _constant(np.sign(gold_K))) * _constant(share_K)).sum()
    if squared_weight:
        # The sum of squares around a mean of n values is that over all pairs of them, divided by n.
        off_K = ahead_K - _constant(gold_K)
        loss = loss + squared_weight * (off_K * off_K * _constant(pairs.weight_K / counts["candidates"])).sum()
    return loss


def count_pairs(gold_R: ArrayLike, group_sizes: Sequence[int], *, gold_unit: float = 10.0) -> dict[str, float]:
    """The denominators of `group_loss`: "pairs" of different gold, and "candidates" that are in a pair."""
    return _Pairs.of(gold_R, group_sizes, gold_unit).counts()


@dataclass(frozen=True, slots=True)
class _Pairs:
    """All pairs of candidates with gold in a group: numbers of both, their gold's difference, 1 / size of the group."""

    first_K: NDArray[np.int64]
    second_K: NDArray[np.int64]
    gold_K: NDArray[np.float64]
    weight_K: NDArray[np.float64]
    n_candidates: int

    @classmethod
    def of(cls, gold_R: ArrayLike, group_sizes: Sequence[int], gold_unit: float) -> _Pairs:
        gold_R = np.asarray(gold_R, dtype=np.float64) / gold_unit
        if gold_R.ndim != 1 or sum(group_sizes) != len(gold_R):
            raise ValueError(f"groups of {sum(group_sizes)} candidates, but gold of {list(gold_R.shape)}")
        first: list[NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)]
        second, weights, n_candidates = list(first), [np.zeros(0)], 0
        for end, size in zip(np.cumsum(group_sizes), group_sizes, strict=True):
            members = end - size + np.flatnonzero(~np.isnan(gold_R[end - size : end]))
            if len(members) < 2:
                continue
            i_K, j_K = np.triu_indices(len(members), k=1)
            first.append(members[i_K])
            second.append(members[j_K])
            weights.append(np.full(len(i_K), 1.0 / len(members)))
            n_candidates += len(members)
        first_K, second_K = np.concatenate(first), np.concatenate(second)
        return cls(first_K, second_K, gold_R[first_K] - gold_R[second_K], np.concatenate(weights), n_candidates)

    @property
    def differs_K(self) -> NDArray[np.bool_]:
        return np.abs(self.gold_K) > LEAST_DIFFERENCE

    def counts(self) -> dict[str, float]:
        return {"pairs": float(self.differs_K.sum()), "candidates": float(self.n_candidates)}


def _constant(values: NDArray[np.float64]) -> paddle.Tensor:
    return paddle.to_tensor(values.astype(np.float32))
