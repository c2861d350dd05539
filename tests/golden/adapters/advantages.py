"""Golden rows of advantage rules, KL in the reward, returns and normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from grrm.algorithms.advantages import AdvantageInputs, grpo, grpo_no_std
from grrm.algorithms.advantages.gae import gae, value_targets
from grrm.algorithms.advantages.moments import RunningMoments, normalize_advantages, whiten
from grrm.algorithms.advantages.reinforce_plus_plus import add_final_score, discounted_returns


def _arrays(row: dict[str, Any], *names: str) -> list[Any]:
    return [np.array(row[name], dtype=np.float64) for name in names]


def _group_ids(row: dict[str, Any]) -> Any:
    return np.unique(row["index"], return_inverse=True)[1]


def _grpo_fixed(row: dict[str, Any]) -> Any:
    rewards_R, mask_RT = _arrays(row, "rewards", "mask")
    inputs = AdvantageInputs(rewards_R, _group_ids(row), mask_RT)
    by_std = row.get("norm_by_std", True)
    return (grpo.function(inputs, epsilon=row["epsilon"]) if by_std else grpo_no_std(inputs)).tolist()


def _kl_in_reward(row: dict[str, Any]) -> Any:
    log_probs_RT, ref_RT, scores_R, mask_RT = _arrays(row, "log_probs", "ref_log_probs", "reward_score", "mask")
    kl_rewards_RT = -row["kl_coeff"] * (log_probs_RT - ref_RT)
    clipped_R = np.clip(scores_R, -row["clip_range_score"], row["clip_range_score"])
    rewards_RT = add_final_score(kl_rewards_RT, clipped_R, mask_RT)
    return {"rewards_with_kl": rewards_RT.tolist(), "kl_rewards": kl_rewards_RT.tolist()}


def _reinforce(row: dict[str, Any]) -> Any:
    rewards_RT, mask_RT = _arrays(row, "rewards", "mask")
    returns_RT = discounted_returns(rewards_RT, mask_RT, row["gamma"])
    return {"advantages": whiten(returns_RT, mask_RT).tolist(), "returns": returns_RT.tolist()}


def _gae(row: dict[str, Any]) -> Any:
    rewards_RT, values_RT, mask_RT = _arrays(row, "rewards", "values", "mask")
    zeros_R = np.zeros(len(mask_RT))
    rewards = {"kl_RT": -rewards_RT, "kl_coeff": 1.0}  # the only rewards of single tokens that a rule takes
    inputs = AdvantageInputs(
        zeros_R, zeros_R, mask_RT, **rewards, values_RT=values_RT, gamma=row["gamma"], gae_lambda=row["lam"]
    )
    return {"advantages": gae(inputs).tolist(), "returns": value_targets(inputs).tolist()}


def _round_to_bfloat16(value: float) -> float:
    """Round to the nearest bfloat16, ties to even; PaddleNLP does so to the statistics it normalises with."""
    bits = int(np.float32(value).view(np.uint32))
    return float(np.uint32((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32))


def _round_and_normalize(values: Any, mean: float, std: float) -> Any:
    return (values - _round_to_bfloat16(mean)) / (_round_to_bfloat16(std) + 1e-8)


def _reward_normalization(row: dict[str, Any]) -> Any:
    moments, steps = RunningMoments(), []
    for batch in row["batches"]:
        batch_R = np.array(batch, dtype=np.float64)
        moments.update(batch_R)
        steps.append(
            {
                **moments.state_dict(),
                "normalized": moments.normalize(batch_R).tolist(),
                "normalized_bf16_stats": _round_and_normalize(batch_R, moments.mean, moments.var**0.5).tolist(),
            }
        )
    return steps


def _advantage_normalization(row: dict[str, Any]) -> Any:
    advantages_RT, mask_RT = _arrays(row, "advantages", "mask")
    valid_N = advantages_RT[mask_RT > 0]
    rounded_RT = _round_and_normalize(advantages_RT, valid_N.mean(), valid_N.std(ddof=1)) * mask_RT
    normalized_RT = normalize_advantages(advantages_RT, mask_RT)
    return {"normalized": normalized_RT.tolist(), "normalized_bf16_stats": rounded_RT.tolist()}


FIXED = {
    "verl.grpo_advantage": _grpo_fixed,
    "paddlenlp.grpo_advantage": _grpo_fixed,
    "paddlenlp.add_kl_divergence_regularization": _kl_in_reward,
    "paddlenlp.reinforce_pp_advantage": _reinforce,
    "verl.reinforce_pp_advantage": _reinforce,
    "paddlenlp.gae": _gae,
}
COMPAT = {
    "paddlenlp.reward_normalization": _reward_normalization,
    "paddlenlp.advantage_normalization": _advantage_normalization,
}
