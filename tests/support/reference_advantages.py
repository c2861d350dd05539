"""What verl and PaddleNLP compute differently, and GAE, which no rule here needs: for comparison in golden vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from grrm.algorithms.advantages.interface import FloatArray, spread_over_tokens
from grrm.algorithms.advantages.moments import group_moments


def grpo_with_raw_singletons(
    rewards_R: FloatArray,
    groups_R: npt.NDArray[Any],
    mask_RT: npt.NDArray[Any],
    normalize_by_std: bool = True,
    epsilon: float = 1e-6,
) -> FloatArray:
    """Return GRPO advantages [R, T] where a group of one keeps its raw reward: mean 0, std 1, as verl and PaddleNLP."""
    moments = group_moments(rewards_R, groups_R)
    is_single_R = moments.size_R == 1
    advantages_R = np.where(is_single_R, rewards_R, moments.deviation_R)
    if normalize_by_std:
        advantages_R = advantages_R / (np.where(is_single_R, 1.0, moments.std_R) + epsilon)
    return spread_over_tokens(advantages_R, mask_RT)


def add_final_score_or_first(
    token_rewards_RT: FloatArray, scores_R: FloatArray, mask_RT: npt.NDArray[Any]
) -> FloatArray:
    """Return token rewards plus scores; a response without tokens gets its score at index 0, as in PaddleNLP."""
    last_R = np.argmax(np.cumsum(mask_RT, axis=1), axis=1)
    rewards_RT = token_rewards_RT.copy()
    rewards_RT[np.arange(len(last_R)), last_R] += scores_R
    return rewards_RT


def round_to_bfloat16(value: float) -> float:
    """Round to the nearest bfloat16, ties to even; PaddleNLP does so to the statistics it normalises with."""
    bits = int(np.float32(value).view(np.uint32))
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return float(np.uint32(rounded).view(np.float32))


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
