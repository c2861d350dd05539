"""Rewards per token and the returns that follow from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .interface import FloatArray


def add_final_score(token_rewards_RT: FloatArray, scores_R: FloatArray, mask_RT: npt.NDArray[Any]) -> FloatArray:
    """Return token rewards with each response's score added at its last token; the input stays as it is.

    A response without tokens has no place for its score, which is then left out.
    """
    mask_RT = np.asarray(mask_RT).astype(bool)
    rows_N = np.flatnonzero(mask_RT.any(axis=1))
    last_N = mask_RT.shape[1] - 1 - np.argmax(mask_RT[rows_N, ::-1], axis=1) if rows_N.size else rows_N
    rewards_RT = token_rewards_RT.copy()
    rewards_RT[rows_N, last_N] += scores_R[rows_N]
    return rewards_RT


def discounted_returns(rewards_RT: FloatArray, mask_RT: npt.NDArray[Any], gamma: float = 1.0) -> FloatArray:
    """Return ``R_t = r_t + gamma * mask_{t+1} * R_{t+1}`` [R, T].

    What stands on padding never enters the return of a response token; on padding itself the return is the local
    reward, as PaddleNLP has it.
    """
    returns_TR = np.array(rewards_RT.T, dtype=np.float64, order="C")
    mask_TR = np.asarray(mask_RT, dtype=np.float64).T
    for t in range(len(returns_TR) - 2, -1, -1):
        returns_TR[t] += gamma * mask_TR[t + 1] * returns_TR[t + 1]
    return np.ascontiguousarray(returns_TR.T)
