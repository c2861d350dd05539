"""Generalised advantage estimation, for algorithms with a critic."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .interface import FloatArray


def generalized_advantages(
    rewards_RT: FloatArray, values_RT: FloatArray, mask_RT: npt.NDArray[Any], gamma: float = 1.0, lam: float = 0.95
) -> tuple[FloatArray, FloatArray]:
    """Return (advantages, returns), both [R, T].

    ``delta_t = r_t + gamma * V_{t+1} - V_t``; ``A_t = delta_t + gamma * lam * A_{t+1}``; returns are ``A + V``.
    Rewards and values count as 0 outside the mask, and nothing is whitened. Source: arXiv 1506.02438, eq. 16.

    Degenerate: a response without tokens gives 0.
    """
    mask_TR = np.asarray(mask_RT).astype(bool).T
    rewards_TR = np.where(mask_TR, np.asarray(rewards_RT, dtype=np.float64).T, 0.0)
    values_TR = np.where(mask_TR, np.asarray(values_RT, dtype=np.float64).T, 0.0)
    advantages_TR = rewards_TR - values_TR
    advantages_TR[:-1] += gamma * values_TR[1:]
    for t in range(len(advantages_TR) - 2, -1, -1):
        advantages_TR[t] += gamma * lam * advantages_TR[t + 1]
    return np.ascontiguousarray(advantages_TR.T), np.ascontiguousarray((advantages_TR + values_TR).T)
