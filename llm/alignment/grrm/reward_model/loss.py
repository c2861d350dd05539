"""The loss of reward models: scores against gold, both as differences within a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import paddle
import paddle.nn.functional as F
from numpy.typing import NDArray

from grrm.training.gold_groups import LEAST_DIFFERENCE


def group_loss(
    scores_R: paddle.Tensor,
    gold: Sequence[Sequence[float]],
    denominators: Mapping[str, float],
    *,
    squared_weight: float,
) -> paddle.Tensor:
    """Bradley-Terry over pairs of different gold, and `squared_weight` times the squared error of centred scores.

    With scores s, gold g of two or more candidates per group, and groups c:

        mean over pairs i, j of a group with g_i - g_j > LEAST_DIFFERENCE of log(1 + exp(s_j - s_i))
        + squared_weight * mean over candidates of ((s_i - mean_c s) - (g_i - mean_c g))^2

    Bradley and Terry 1952, as InstructGPT's reward model (arXiv:2203.02155, formula 1): that is two candidates and a
    `squared_weight` of 0. The scores of the groups lie one after the other; a batch's pairs weigh the same whatever
    their group.

    The means divide by `denominators`, counted by `count_pairs` over these groups or more: the losses of parts of a
    batch then add up to the loss of the batch. Raises ValueError for another number of scores than of gold.
    """
    pairs = _Pairs.of(gold)
    n_candidates = sum(map(len, gold))
    if scores_R.shape != [n_candidates]:
        raise ValueError(f"{scores_R.shape} scores for {n_candidates} candidates")
    scores_R, gold_K = scores_R.astype("float32"), pairs.gold_K
    first_K, second_K = paddle.to_tensor(pairs.first_K), paddle.to_tensor(pairs.second_K)
    ahead_K = paddle.gather(scores_R, first_K) - paddle.gather(scores_R, second_K)
    share_K = pairs.differs_K / max(denominators["pairs"], 1.0)
    loss = (F.softplus(-ahead_K * _constant(np.sign(gold_K))) * _constant(share_K)).sum()
    if squared_weight:
        # The sum of squares around a mean of n values is that over all pairs of them, divided by n.
        off_K = ahead_K - _constant(gold_K)
        loss = loss + squared_weight * (off_K * off_K * _constant(pairs.weight_K / denominators["candidates"])).sum()
    return loss


def count_pairs(gold: Sequence[Sequence[float]]) -> dict[str, float]:
    """The denominators of `group_loss`: "pairs" of different gold, and "candidates"."""
    return {"pairs": float(_Pairs.of(gold).differs_K.sum()), "candidates": float(sum(map(len, gold)))}


@dataclass(frozen=True, slots=True)
class _Pairs:
    """All pairs of candidates in a group: numbers of both, their gold's difference, 1 / size of the group."""

    first_K: NDArray[np.int64]
    second_K: NDArray[np.int64]
    gold_K: NDArray[np.float64]
    weight_K: NDArray[np.float64]

    @classmethod
    def of(cls, gold: Sequence[Sequence[float]]) -> _Pairs:
        sizes = [len(group) for group in gold]
        starts = np.cumsum([0, *sizes[:-1]])
        pairs = [np.triu_indices(size, k=1) for size in sizes]
        first_K = np.concatenate([start + i_K for start, (i_K, _) in zip(starts, pairs, strict=True)])
        second_K = np.concatenate([start + j_K for start, (_, j_K) in zip(starts, pairs, strict=True)])
        weight_K = np.concatenate([np.full(len(i_K), 1.0 / size) for size, (i_K, _) in zip(sizes, pairs, strict=True)])
        gold_R = np.concatenate(gold, dtype=np.float64)
        return cls(first_K, second_K, gold_R[first_K] - gold_R[second_K], weight_K)

    @property
    def differs_K(self) -> NDArray[np.bool_]:
        return np.abs(self.gold_K) > LEAST_DIFFERENCE


def _constant(values: NDArray[np.float64]) -> paddle.Tensor:
    return paddle.to_tensor(values.astype(np.float32))
