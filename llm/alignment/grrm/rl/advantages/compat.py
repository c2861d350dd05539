"""The reference implementations' known departures, kept for comparison only. No trainer uses them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .group_moments import group_moments
from .interface import FloatArray, spread_over_tokens


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
