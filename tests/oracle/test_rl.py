"""Real runs with their objective's keys off their defaults, recomputed in float64 from what they left behind."""

from __future__ import annotations

import os
from pathlib import Path

from oracle.comparison import Comparison
from oracle.rl import RlOracle
from oracle.run_files import Run
from oracle.world import write_oracle_policy
from support.rl_processes import CONFIGS, RL_SETTINGS, ROOT, TinyWorld, entry_command, one_rank, run

LIMITS = {"gradient": 1e-4, "AdamW's steps": 1e-4, "reward": 1e-12, "advantage": 1e-5, "learning rate": 1e-3}
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
    "adam_epsilon": "0.000001",
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
    "warmup_steps": "1",
    "max_grad_norm": "0.5",
    "max_tokens_per_micro_batch": "220",
    "per_device_train_batch_size": "8",
    "enable_overlong_reward_buffer": "true",
    "overlong_reward_buffer": "8",
    "overlong_penalty_factor": "0.5",
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


def test_grpo_with_its_keys_off_their_defaults(world: TinyWorld, tmp_path: Path) -> None:
    oracle = recomputed(world, tmp_path, GRPO)
    exercised = {
        "unscored", "groups of one", "duplicates", "beyond clip_range_score", "pg_clipfrac", "pg_clipfrac_lower",
        "gradient clipped", "decay", "sft_loss",
    }  # fmt: skip
    assert exercised <= {name for name, value in oracle.seen.items() if value}
    assert oracle.seen["lengths"] > 4
    assert_close(oracle.comparison)
