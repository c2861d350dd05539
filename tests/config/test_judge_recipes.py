"""The argument files of the judge and of its policy: the published numbers, and how the stages fit together."""

from __future__ import annotations

from pathlib import Path

import pytest

from grrm.config import Launch, RLConfig, SFTConfig, prepare
from grrm.config.load import read_yaml

FOLDER = Path(__file__).parents[2] / "llm/config/qwen"


def load(name: str, world_size: int = 16):
    stage = SFTConfig if name.startswith("sft") else RLConfig
    return prepare(stage, FOLDER / name, launch=Launch("gpu", world_size), check_machine=False, n_prompts=100_000)


def test_second_stage_of_the_judge():
    prepared = load("rlvr_grrm_argument.yaml")
    expected = {
        "global_batch_size": 512,
        "global_mini_batch_size": 128,
        "rollout_n": 8,
        "max_prompt_len": 1600,
        "max_dec_len": 4096,
        "temperature": 1.0,
        "eval_temperature": 1.0,
        "eval_top_p": 0.7,
        "learning_rate": 1e-5,
        "lr_scheduler_type": "cosine",
        "min_learning_rate": 2e-6,
        "num_train_epochs": 1.0,
        "advantage_rule": "grpo_no_std",
        "policy_loss": "gspo",
        "loss_agg_mode": "seq-mean-token-mean",
        "clip_range_ratio_low": 3e-4,
        "clip_range_ratio_high": 4e-4,
        "kl_loss_coeff": 0.0,
        "kl_coeff": 0.0,
        "sft_coeff": 0.0,
        "use_rule_reward": True,
        "rule_reward": None,  # as each row says
        "score_scale_factor": 1.0,
        "default_reward": 0.0,
        "enable_overlong_reward_buffer": False,
        "use_rm_server": False,
        "evaluation_strategy": "steps",
        "eval_steps": 80,  # 20 rollouts
        "eval_on_start": True,
    }
    assert {key: getattr(prepared.config, key) for key in expected} == expected
    assert prepared.plan.updates_per_rollout == 4


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("sft_gqm_argument", "rlvr_grrm_argument"),
        ("sft_gqm_tiny_argument", "rlvr_grrm_tiny_argument"),
        ("sft_mt_tiny_argument", "gspo_grrm_tiny_argument"),
    ],
)
def test_second_stage_goes_on_where_the_first_ends(first, second):
    first, second = (read_yaml(FOLDER / f"{name}.yaml") for name in (first, second))
    assert second["actor_model_name_or_path"] == first["output_dir"]
    assert Path(second["train_datasets"]).parent == Path(first["train_datasets"]).parent
    assert second["max_prompt_len"] <= first["max_length"]


def test_tiny_file_has_the_objective_and_the_reward_of_the_policy_recipe():
    tiny, recipe = (read_yaml(FOLDER / f"{name}_argument.yaml") for name in ("gspo_grrm_tiny", "grpo_grrm"))
    keys = "rl_algorithm norm_adv_by_std policy_loss loss_agg_mode clip_range_ratio_low clip_range_ratio_high sft_coeff"
    keys += " kl_loss_coeff rollout_n extractor_type score_scale_factor default_reward overlong_penalty_factor"
    assert {key: tiny[key] for key in keys.split()} == {key: recipe[key] for key in keys.split()}
    assert tiny["overlong_reward_buffer"] / tiny["max_dec_len"] == (
        recipe["overlong_reward_buffer"] / recipe["max_dec_len"]
    )
    assert tiny["global_batch_size"] / tiny["global_mini_batch_size"] == 4
