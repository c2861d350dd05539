"""Mean and spread inside each group, by segment reductions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .interface import FloatArray


@dataclass(frozen=True, eq=False)
class GroupMoments:
    """Per row: how it stands in its group, counting scored members only. Unscored rows are NaN (size 0).

    deviation_R: score minus group mean; exactly 0 when all scores of the group are equal or there is but one.
    std_R: unbiased standard deviation of the group, 0 for a group of one.
    size_R: number of scored members.
    """

    deviation_R: FloatArray
    std_R: FloatArray
    size_R: FloatArray


def group_moments(scores_R: FloatArray, groups_R: npt.NDArray[Any]) -> GroupMoments:
    """Return each row's deviation from its group mean, the group's std and its size; NaN scores are left out.

    The result of a row does not depend on the order of rows, to the last bit: sums run over sorted scores.
    """
    scored_R = ~np.isnan(scores_R)
    deviation_R, std_R = np.full(len(scores_R), np.nan), np.full(len(scores_R), np.nan)
    size_R = np.zeros(len(scores_R))
    if not scored_R.any():
        return GroupMoments(deviation_R, std_R, size_R)
    scores_N = scores_R[scored_R]
    group_N = np.unique(np.asarray(groups_R)[scored_R], return_inverse=True)[1]
    order_N = np.lexsort((scores_N, group_N))
    starts_G = np.flatnonzero(np.diff(group_N[order_N], prepend=-1))
    size_G = np.bincount(group_N).astype(np.float64)

    # Measured from the group's least score, a group of equal scores has deviations of exactly 0.
    shifted_N = scores_N - scores_N[order_N][starts_G][group_N]
    deviation_N = shifted_N - (np.add.reduceat(shifted_N[order_N], starts_G) / size_G)[group_N]
    squares_G = np.add.reduceat((deviation_N * deviation_N)[order_N], starts_G)
    deviation_R[scored_R] = deviation_N
    std_R[scored_R] = np.sqrt(squares_G / np.maximum(size_G - 1, 1))[group_N]
    size_R[scored_R] = size_G[group_N]
    return GroupMoments(deviation_R, std_R, size_R)
