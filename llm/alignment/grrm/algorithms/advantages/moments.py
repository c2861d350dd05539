"""Means and spreads: of a group's scores, of a batch's tokens (whitening), and of all rewards of a run.

Results depend neither on the order of rows nor on the amount of padding, to the last bit, so that any number of ranks
agrees: sums run over sorted scores, token by token from the left, or through `math.fsum`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from grrm.algorithms.advantages.interface import AdvantageInputs, FloatArray, sum_rows

EPSILON = 1e-8


@dataclass(frozen=True, eq=False)
class GroupMoments:
    """Each response within its group, counting scored members only. Unscored responses are NaN (size 0).

    deviation_R: score minus group mean; exactly 0 when all scores of the group are equal or there is but one.
    std_R: unbiased standard deviation of the group, 0 for a group of one.
    size_R: number of scored members.
    """

    deviation_R: FloatArray
    std_R: FloatArray
    size_R: FloatArray


def group_moments(scores_R: FloatArray, groups_R: npt.NDArray[Any]) -> GroupMoments:
    """Return each response's deviation from its group mean, the group's std and its size; NaN is unscored."""
    scored_R = ~np.isnan(scores_R)
    moments = GroupMoments(np.full(len(scores_R), np.nan), np.full(len(scores_R), np.nan), np.zeros(len(scores_R)))
    if scored_R.any():
        scored = _moments_of_scored(scores_R[scored_R], np.asarray(groups_R)[scored_R])
        moments.deviation_R[scored_R], moments.std_R[scored_R], moments.size_R[scored_R] = scored
    return moments


def _moments_of_scored(scores_R: FloatArray, groups_R: npt.NDArray[Any]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Deviation, std and size as in `GroupMoments` by segment reductions; P indexes the groups (prompts)."""
    prompt_R = np.unique(groups_R, return_inverse=True)[1]
    order_R = np.lexsort((scores_R, prompt_R))
    starts_P = np.flatnonzero(np.diff(prompt_R[order_R], prepend=-1))
    size_P = np.bincount(prompt_R).astype(np.float64)

    # Measured from the group's least score, a group of equal scores has deviations of exactly 0.
    shifted_R = scores_R - scores_R[order_R][starts_P][prompt_R]
    deviation_R = shifted_R - (np.add.reduceat(shifted_R[order_R], starts_P) / size_P)[prompt_R]
    squares_P = np.add.reduceat((deviation_R * deviation_R)[order_R], starts_P)
    std_P = np.sqrt(squares_P / np.maximum(size_P - 1, 1))
    return deviation_R, std_P[prompt_R], size_P[prompt_R]


def masked_moments(values_RT: FloatArray, mask_RT: npt.NDArray[Any]) -> tuple[FloatArray, float]:
    """Return values minus their mean over the mask (0 elsewhere) [R, T], and their unbiased variance.

    Equal values give exactly 0, and so do fewer than two tokens, which leave nothing to compare.
    """
    mask_RT = np.asarray(mask_RT).astype(bool)
    n_tokens = int(mask_RT.sum())
    if n_tokens < 2:
        return np.zeros(np.shape(values_RT)), 0.0
    shifted_RT = np.where(mask_RT, values_RT - values_RT.min(where=mask_RT, initial=np.inf), 0.0)
    centred_RT = np.where(mask_RT, shifted_RT - math.fsum(sum_rows(shifted_RT)) / n_tokens, 0.0)
    return centred_RT, math.fsum(sum_rows(centred_RT * centred_RT)) / (n_tokens - 1)


def whiten(values_RT: FloatArray, mask_RT: npt.NDArray[Any]) -> FloatArray:
    """Return ``(x - mean) / sqrt(var + 1e-8)`` over the mask, 0 elsewhere [R, T]; unbiased variance.

    Degenerate: equal values, or fewer than two tokens, give 0.
    """
    centred_RT, variance = masked_moments(values_RT, mask_RT)
    return centred_RT / math.sqrt(variance + EPSILON)


@dataclass
class RunningMoments:
    """Mean and variance of all rewards so far; `update` takes the rewards of each step, gathered from all ranks.

    Merging follows Chan, Golub and LeVeque (1979): ``var = (n_a var_a + n_b var_b + d^2 n_a n_b / n) / n`` with the
    unbiased variance of the new batch, as PaddleNLP's ``normalize_reward`` has it.
    """

    mean: float = 0.0
    var: float = 1.0
    count: int = 0

    def update(self, rewards_R: npt.NDArray[Any]) -> None:
        """Take in a batch; NaN (unscored) rewards are left out. A batch of one has variance 0."""
        scored_R = np.asarray(rewards_R, dtype=np.float64)
        scored_R = scored_R[~np.isnan(scored_R)]
        if scored_R.size == 0:
            return
        batch_mean = math.fsum(scored_R) / scored_R.size
        deviation_R = scored_R - batch_mean
        batch_var = math.fsum(deviation_R * deviation_R) / max(scored_R.size - 1, 1)
        total = self.count + scored_R.size
        delta = batch_mean - self.mean
        spread = self.var * self.count + batch_var * scored_R.size + delta * delta * self.count * scored_R.size / total
        self.mean += delta * scored_R.size / total
        self.var, self.count = spread / total, total

    def normalize(self, rewards_R: npt.NDArray[Any]) -> FloatArray:
        """Return ``(r - mean) / (std + 1e-8)`` [R]; NaN stays NaN. Equal rewards from the start give 0."""
        return (np.asarray(rewards_R, dtype=np.float64) - self.mean) / (math.sqrt(self.var) + EPSILON)

    def state_dict(self) -> dict[str, float]:
        """Return what a checkpoint must keep, as plain JSON numbers."""
        return {"mean": self.mean, "var": self.var, "count": self.count}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Go on from a saved state. Raises KeyError if a field is missing."""
        self.mean, self.var, self.count = float(state["mean"]), float(state["var"]), int(state["count"])


def length_neutral(inputs: AdvantageInputs) -> AdvantageInputs:
    """`inputs` with rewards that do not depend on length: ``r - b (z - group mean of z)``, z the log of the tokens.

    b is the least-squares slope of rewards on z, both measured from their group's mean, over the responses of the
    batch that a judge has scored, so that neither longer nor shorter ones are preferred on average.

    Groups in which the judge gave one score only are left out of the fit and stay as they are. Otherwise a rule that
    divides by the group's standard deviation would make b z, all that tells their responses apart, as large as any
    other advantage.

    Fixed rewards, as that of a response without a translation, are not a judge's and stay as they are: failed responses
    of maximum length would otherwise bias the slope so that longer translations gain.

    RL amplifies even a small length bias of a judge, as it has the same sign in every group. Control for length
    by regression: Dubois et al., arXiv 2404.04475. Degenerate: without two lengths in a group of different scores,
    rewards stay as they are.
    """
    lengths_R = np.maximum(np.asarray(inputs.mask_RT).astype(bool).sum(axis=1), 1)
    rewards_R = np.asarray(inputs.rewards_R, dtype=np.float64)
    is_judged_R = ~np.isnan(rewards_R)
    if inputs.judged_R is not None:
        is_judged_R &= np.asarray(inputs.judged_R, dtype=bool)
    judged = group_moments(np.where(is_judged_R, rewards_R, np.nan), inputs.groups_R)
    differs_R = judged.std_R > 0
    z_R = group_moments(np.where(differs_R, np.log(lengths_R), np.nan), inputs.groups_R).deviation_R
    spread = math.fsum(z_R[differs_R] ** 2)
    if spread == 0:
        return inputs
    slope = math.fsum(judged.deviation_R[differs_R] * z_R[differs_R]) / spread
    return replace(inputs, rewards_R=np.where(differs_R, rewards_R - slope * z_R, rewards_R))


def normalize_advantages(advantages_RT: FloatArray, mask_RT: npt.NDArray[Any]) -> FloatArray:
    """Return ``(A - mean) / (std + 1e-8)`` over the masked tokens of the batch, 0 elsewhere [R, T].

    The caller's mask leaves out unscored rows. Degenerate: equal advantages, or fewer than two tokens, give 0.
    """
    centred_RT, variance = masked_moments(np.asarray(advantages_RT, dtype=np.float64), mask_RT)
    return centred_RT / (math.sqrt(variance) + EPSILON)
