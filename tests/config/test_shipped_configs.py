"""Every shipped argument file is valid, and the recipe files hold the published numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grrm.config import Launch, RewardModelConfig, RLConfig, SFTConfig, prepare
from grrm.config.load import read_yaml, switches_without_effect
from grrm.demo.plan import Plan
from grrm.demo.settings import DemoSettings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "llm" / "config" / "qwen"
FILES = sorted(FOLDER.glob("*.yaml"))
STAGES = {"sft": SFTConfig, "rm": RewardModelConfig, "ranker": RewardModelConfig}  # by the start of a file's name


def load(name, world_size):
    stage = STAGES.get(name.partition("_")[0], RLConfig)
    launch = Launch("cpu" if "tiny" in name else "gpu", world_size)
    return prepare(stage, FOLDER / name, launch=launch, check_machine=False, n_prompts=100_000)


def test_all_recipes_are_shipped():
    assert {path.name for path in FILES} >= {
        "grpo_grrm_argument.yaml",
        "grpo_grrm_tiny_argument.yaml",
        "reinforce_plus_plus_grrm_argument.yaml",
        "reinforce_plus_plus_grrm_tiny_argument.yaml",
        "sft_argument.yaml",
        "sft_tiny_argument.yaml",
        "ranker_argument.yaml",
        "ranker_tiny_argument.yaml",
        "rm_argument.yaml",
        "rm_tiny_argument.yaml",
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_shipped_file_loads(path):
    for world_size in (1, 2) if "tiny" in path.name else (8, 16):
        prepared = load(path.name, world_size)
        assert switches_without_effect(prepared.config) is None, "a shipped file sets a switch that does nothing"
        assert path.name.partition("_")[0] in STAGES or prepared.plan.optimizer_steps > 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shipped_files_use_current_names_and_fit_on_an_editor_line(path):
    assert not set(read_yaml(path)) & {"num_return_sequences", "mini_batch_size", "quant_type", "label_key"}


def test_grpo_recipe_of_grrm():
    values = load("grpo_grrm_argument.yaml", 8).config
    expected = {
        "global_batch_size": 512,
        "rollout_n": 4,
        "max_prompt_len": 1280,
        "max_dec_len": 4096,
        "learning_rate": 1e-5,
        "lr_scheduler_type": "constant",
        "num_train_epochs": 2.0,
        "sft_coeff": 0.1,
        "advantage_rule": "grpo_no_std",
        "policy_loss": "gspo",
        "loss_agg_mode": "seq-mean-token-mean",
        "clip_range_ratio_low": 3e-4,
        "clip_range_ratio_high": 4e-4,
        "kl_loss_coeff": 0.0,
        "kl_coeff": 0.0,
        "temperature": 1.0,
        "eval_temperature": 1.0,
        "eval_top_p": 0.7,
        "score_scale_factor": 0.01,
        "default_reward": -0.04,
        "extractor_type": "codeblock",
        "enable_overlong_reward_buffer": True,
        "overlong_reward_buffer": 2048,
        "overlong_penalty_factor": 0.04,
        "use_rm_server": True,
        "tensor_parallel_degree": 1,
        "sharding": "stage1",
    }
    assert {key: getattr(values, key) for key in expected} == expected


def test_pairwise_recipe_of_eax():
    values = load("rm_argument.yaml", 8).config
    expected = {
        "reward_model": "pairwise",
        "chat_template": "chatml",
        "max_length": 2048,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "learning_rate": 4e-6,
        "backbone_learning_rate": None,
        "squared_weight": None,
        "num_train_epochs": 1.0,
        "lr_scheduler_type": "cosine",
        "warmup_ratio": 0.1,
        "bf16": True,
        "val_size": 0.04,
        "per_device_eval_batch_size": 4,
        "evaluation_strategy": "steps",
        "eval_steps": 100,
        "logging_steps": 1,
    }
    assert {key: getattr(values, key) for key in expected} == expected


def test_both_recipes_share_data_and_reward():
    grpo, plus = (load(f"{name}_grrm_argument.yaml", 8).config for name in ("grpo", "reinforce_plus_plus"))
    shared = ("train_datasets", "max_prompt_len", "max_dec_len", "rollout_n", "global_batch_size", "extractor_type")
    shared += ("score_scale_factor", "default_reward", "overlong_reward_buffer", "overlong_penalty_factor")
    assert [getattr(grpo, key) for key in shared] == [getattr(plus, key) for key in shared]
    assert plus.advantage_rule == "reinforce_plus_plus"


def test_tiny_twins_start_from_what_the_demo_leaves_and_differ_in_algorithm_and_output():
    grpo, plus = (read_yaml(FOLDER / f"{name}_grrm_tiny_argument.yaml") for name in ("grpo", "reinforce_plus_plus"))
    assert grpo["actor_model_name_or_path"] == plus["actor_model_name_or_path"]
    stages = {stage.name: stage for stage in Plan(DemoSettings(), ROOT, ROOT / "runs/demo").stages()}
    assert ROOT / grpo["actor_model_name_or_path"] == stages["seed1/sft"].folder
    assert ROOT / grpo["train_datasets"] in stages["convert"].outputs
    assert grpo["train_datasets"] == plus["train_datasets"]
    sft = read_yaml(FOLDER / "sft_tiny_argument.yaml")
    assert ROOT / sft["train_datasets"] in stages["convert"].outputs
    assert ROOT / sft["tokenizer_name_or_path"] == stages["tokenizer"].folder
    assert grpo["rl_algorithm"] != plus["rl_algorithm"]
    assert grpo["output_dir"] != plus["output_dir"]


def test_tiny_model_is_a_qwen2_whose_heads_divide():
    config = json.loads((FOLDER / "tiny_model_config.json").read_text())
    assert config["model_type"] == "qwen2"
    assert config["hidden_size"] % config["num_attention_heads"] == 0
    assert config["num_attention_heads"] % config["num_key_value_heads"] == 0
    assert config["max_position_embeddings"] >= read_yaml(FOLDER / "sft_tiny_argument.yaml")["max_length"]
