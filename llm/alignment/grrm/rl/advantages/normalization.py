"""Optional normalisation before (rewards) and after (advantages) the advantage rule."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .interface import FloatArray
from .whitening import masked_moments


@dataclass
class RunningMoments:
    """Mean and variance of all rewards seen so far, to be fed the *gathered* rewards of each step once.

    Merging follows Chan, Golub and LeVeque (1979): ``var = (n_a var_a + n_b var_b + d^2 n_a n_b / n) / n`` with the
    unbiased variance of the new batch, as PaddleNLP's ``normalize_reward`` has it.
    """

    mean: float = 0.0
    var: float = 1.0
    count: int = 0

    def update(self, rewards_R: npt.NDArray[Any]) -> None:
        """Take in a batch; NaN (unscored) rewards are left out. A batch of one has variance 0."""
        scored_N = np.asarray(rewards_R, dtype=np.float64)
        scored_N = scored_N[~np.isnan(scored_N)]
        if scored_N.size == 0:
            return
        batch_mean = math.fsum(scored_N) / scored_N.size
        deviation_N = scored_N - batch_mean
        batch_var = math.fsum(deviation_N * deviation_N) / max(scored_N.size - 1, 1)
        total = self.count + scored_N.size
        delta = batch_mean - self.mean
        spread = self.var * self.count + batch_var * scored_N.size + delta * delta * self.count * scored_N.size / total
        self.mean += delta * scored_N.size / total
        self.var, self.count = spread / total, total

    def normalize(self, rewards_R: npt.NDArray[Any], epsilon: float = 1e-8) -> FloatArray:
        """Return ``(r - mean) / (std + epsilon)`` [R]; NaN stays NaN. Equal rewards from the start give 0."""
        return (np.asarray(rewards_R, dtype=np.float64) - self.mean) / (math.sqrt(self.var) + epsilon)

    def state_dict(self) -> dict[str, float]:
        """Return what a checkpoint must keep, as plain JSON numbers."""
        return {"mean": self.mean, "var": self.var, "count": self.count}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Go on from a saved state. Raises KeyError if a field is missing."""
        self.mean, self.var, self.count = float(state["mean"]), float(state["var"]), int(state["count"])


def normalize_advantages(advantages_RT: FloatArray, mask_RT: npt.NDArray[Any], epsilon: float = 1e-8) -> FloatArray:
    """Return ``(A - mean) / (std + epsilon)`` over the masked tokens of the batch, 0 elsewhere [R, T].

    The caller's mask leaves out unscored rows. Degenerate: equal advantages, or fewer than two tokens, give 0.
    """
    if np.count_nonzero(mask_RT) < 2:
        return np.zeros(np.shape(advantages_RT))
    centred_RT, variance = masked_moments(np.asarray(advantages_RT, dtype=np.float64), mask_RT)
    return centred_RT / (math.sqrt(variance) + epsilon)
