"""Real runs with their objective's keys off their defaults, recomputed in float64 from what they left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from oracle.comparison import Comparison
from oracle.rl import RlOracle
from oracle.run_files import Run
from oracle.world import write_oracle_policy
from support.rl_processes import CONFIGS, RL_SETTINGS, ROOT, TinyWorld, entry_command, one_rank, run

LIMITS = {"gradient": 1e-4, "AdamW's steps": 3e-4, "reward": 1e-12, "advantage": 1e-5, "learning rate": 1e-3}
YAML = "grpo_grrm_tiny_argument.yaml"
COMMON = {
    "reward_judge": "oracle.world:judge",
    "max_unscored_fraction": "null",
    "save_total_limit": "null",
    "max_dec_len": "14",
    "max_length": "110",
    "learning_rate": "0.02",
    "weight_decay": "0.3",
    "adam_beta1": "0.8",
    "adam_beta2": "0.95",
    "adam_epsilon": "0.0001",
}
GRPO = {
    "norm_adv_by_std": "true",
    "temperature": "0.7",
    "update_iters": "2",
    "max_steps": "6",
    "save_steps": "2",
    "clip_range_ratio_low": "0.1",
    "clip_range_ratio_high": "0.3",
    "dual_clip_ratio": "1.4",
    "clip_range_score": "0.4",
    "score_scale_factor": "0.15",
    "default_reward": "-0.1",
    "pg_loss_coeff": "1.5",
    "kl_loss_coeff": "0.3",
    "kl_type": "k3",
    "entropy_coeff": "0.05",
    "sft_coeff": "0.2",
    "lr_scheduler_type": "cosine",
    "min_learning_rate": "0.004",
    "warmup_steps": "0",
    "max_grad_norm": "0.5",
    "max_tokens_per_micro_batch": "220",
    "per_device_train_batch_size": "8",
    "enable_overlong_reward_buffer": "true",
    "overlong_reward_buffer": "8",
    "overlong_penalty_factor": "0.5",
}
REINFORCE = {
    "rl_algorithm": "reinforce_plus_plus",
    "norm_adv_by_std": "null",
    "temperature": "1.3",
    "learning_rate": "0.005",
    "gamma": "0.95",
    "kl_coeff": "0.1",
    "kl_loss_coeff": "0.05",
    "kl_type": "k1",
    "normalize_reward": "true",
    "normalize_advantage": "true",
    "clip_range_ratio_low": "0.3",
    "clip_range_ratio_high": "0.1",
    "clip_range_score": "0.7",
    "rollout_ahead": "1",
    "rollout_is": "token",
    "rollout_is_cap": "1.5",
    "loss_agg_mode": "seq-mean-token-sum",
    "global_mini_batch_size": "2",
    "per_device_train_batch_size": "2",
    "max_steps": "6",
    "save_steps": "2",
    "lr_scheduler_type": "constant_with_warmup",
    "warmup_steps": "2",
    "failure_policy": '{"too_long": "lowest"}',
    "default_reward": "0.3",
    "enable_overlong_reward_buffer": "true",
    "overlong_reward_buffer": "4",
    "overlong_max_resp_len": "8",
    "overlong_penalty_factor": "0.1",
    "overlong_penalty_capped": "false",
}
DR_GRPO = {
    "rl_algorithm": "dr_grpo",
    "norm_adv_by_std": "null",
    "temperature": "1.3",
    "kl_loss_coeff": "0.2",
    "kl_type": "k3+",
    "sft_coeff": "0.3",
    "entropy_coeff": "-0.02",
    "rollout_ahead": "1",
    "rollout_is": "sequence",
    "rollout_is_cap": "1.1",
    "share_prompt": "false",
    "per_device_train_batch_size": "4",
    "max_steps": "4",
    "save_steps": "1",
    "learning_rate": "0.002",
    "lr_scheduler_type": "linear",
    "warmup_steps": "0",
    "failure_policy": '{"too_long": "drop_group", "single_candidate": "mask"}',
}
GSPO = {
    "rl_algorithm": "gspo",
    "temperature": "0.7",
    "kl_loss_coeff": "0.2",
    "kl_type": "k2",
    "entropy_coeff": "0.01",
    "loss_agg_mode": "token-mean",
    "clip_range_ratio_low": "0.02",
    "clip_range_ratio_high": "0.05",
    "update_iters": "3",
    "max_steps": "6",
    "save_steps": "3",
    "frozen_layers": "1",
    "warmup_steps": "0",
    "warmup_ratio": "0.2",
    "max_grad_norm": "0",
}


def recomputed(world: TinyWorld, folder: Path, settings: dict[str, str], *, tied: bool = True) -> RlOracle:
    """A run in a process of its own, recomputed; errors beyond the limits fail the test."""
    policy = write_oracle_policy(world, folder / "policy", tied=tied)
    chosen = {**RL_SETTINGS, **COMMON, **settings}
    command = entry_command(TinyWorld(folder, policy, world.rl_data), folder / "out", YAML, **chosen)
    os.environ["PYTHONPATH"] = str(ROOT / "tests")
    run(one_rank(command))
    places = {"actor_model_name_or_path": str(policy), "train_datasets": str(world.rl_data)}
    oracle = RlOracle(Run(folder / "out", CONFIGS / YAML, {**chosen, **places}))
    oracle.check()
    return oracle


def assert_close(comparison: Comparison) -> None:
    assert comparison.too_large(LIMITS, otherwise=1e-5) == {}


ALWAYS = ("unscored", "duplicates", "decay", "several lengths")
EXERCISED = {
    "grpo": (
        GRPO,
        True,
        (
            "groups of one",
            "beyond clip_range_score",
            "pg_clipfrac",
            "pg_clipfrac_lower",
            "gradient clipped",
            "sft_loss",
        ),
    ),
    "reinforce": (REINFORCE, False, ("beyond clip_range_score", "pg_clipfrac", "rollout_is_capped", "kl in reward")),
    "dr_grpo": (DR_GRPO, True, ("rollout_is_capped", "sft_loss", "groups of one")),
    "gspo": (GSPO, False, ("pg_clipfrac",)),
}
QUICK = "grpo"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == QUICK else pytest.mark.slow) for name in EXERCISED]
)
def test_a_run_with_its_keys_off_their_defaults(name: str, world: TinyWorld, tmp_path: Path) -> None:
    settings, tied, exercised = EXERCISED[name]
    oracle = recomputed(world, tmp_path, settings, tied=tied)
    print(name, oracle.comparison, oracle.seen)
    assert {*ALWAYS, *exercised} <= {name for name, value in oracle.seen.items() if value}
    assert_close(oracle.comparison)
