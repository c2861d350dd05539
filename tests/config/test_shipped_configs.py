"""Every shipped argument file is valid, and the recipe files hold the published numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from grrm.config import DPOConfig, Launch, RewardModelConfig, RLConfig, SFTConfig, prepare
from grrm.config.load import read_yaml, switches_without_effect
from grrm.config.plan import Machine, plan_of_file
from grrm.config.planned_file import PLANNED, write_planned
from grrm.config.values import is_hub_name
from grrm.demo.plan import Plan
from grrm.demo.settings import DemoSettings
from grrm.errors import UserError
from grrm.judges.registry import spec_of
from grrm_reward_server.settings import load_settings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "llm" / "config" / "qwen"
FILES = sorted(FOLDER.glob("*_argument.yaml"))
# By the start of a file's name.
STAGES = {"sft": SFTConfig, "dpo": DPOConfig, "rm": RewardModelConfig, "ranker": RewardModelConfig}


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
        "ppo_grrm_argument.yaml",
        "ppo_grrm_tiny_argument.yaml",
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
def test_shipped_files_use_current_names(path):
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


def test_reward_server_of_grrm_asks_as_the_recipe_and_fits_its_trainers():
    settings = load_settings(str(FOLDER / "reward_server_grrm.yaml"), {})
    options = spec_of(settings.judge).read(settings.judge_options)
    expected = {"prompt_type": "ranking_score", "prompt_length": 2048, "max_new_tokens": 8192, "retries": 0}
    assert {name: getattr(options, name) for name in expected} == expected
    assert (options.temperature, options.top_p, settings.dtype) == (0.0, 1.0, "bfloat16")
    assert settings.model == read_yaml(FOLDER / "rlvr_grrm_argument.yaml")["output_dir"]
    for name in ("grpo", "reinforce_plus_plus"):
        trainer = load(f"{name}_grrm_argument.yaml", 8).config
        assert trainer.reward_server == [f"http://{settings.host}:{settings.port}"]
        assert settings.judge_deadline_s < trainer.reward_read_timeout_s
        for shared in ("extractor_type", "score_scale_factor", "default_reward"):
            assert getattr(settings, shared) == getattr(trainer, shared)


def test_every_7b_file_reads_what_a_header_writes_and_a_stage_leaves():
    files = {path.name: path.read_text() for path in FILES if "tiny" not in path.name}
    written = {
        word for text in files.values() for line in re.findall(r"^#.*$", text, re.MULTILINE) for word in line.split()
    }
    values = {name: read_yaml(FOLDER / name) for name in files}
    outputs = {value["output_dir"] for value in values.values()}
    assert len(outputs) == len(files)
    for value in values.values():
        model = value.get("actor_model_name_or_path") or value["model_name_or_path"]
        assert model in outputs or is_hub_name(model)
        if value.get("reward_model") != "pairwise":  # docs/eax.md makes its pairs
            assert {value["train_datasets"], value.get("eval_datasets", value["train_datasets"])} <= written


def test_cold_starts_of_grrm():
    shared = {"max_length": 12000, "weight_decay": 0.0, "lr_scheduler_type": "cosine", "warmup_ratio": 0.1}
    for name, expected in {
        "sft_argument.yaml": {"learning_rate": 1e-5, "num_train_epochs": 1.0},
        "sft_gqm_argument.yaml": {"learning_rate": 6e-6, "num_train_epochs": 3.0},
    }.items():
        values = load(name, 8).config
        expected = {**shared, **expected, "model_name_or_path": "Qwen/Qwen2.5-7B"}
        assert {key: getattr(values, key) for key in expected} == expected
        rows = {"sft_argument.yaml": 8, "sft_gqm_argument.yaml": 4}[name]  # of an optimizer step on a rank
        assert values.per_device_train_batch_size * values.gradient_accumulation_steps == rows


def test_preference_recipe_of_eax():
    values = load("dpo_argument.yaml", 8).config
    expected = {"dpo_loss": "sigmoid", "dpo_beta": 0.4, "sft_loss_ratio": 2.0, "learning_rate": 2e-7}
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


GPU_FILES = [path for path in FILES if path.name.endswith("_argument.yaml") and "tiny" not in path.name]
# What each size of Qwen2.5 is planned for: devices and the memory of one; docs/arguments.md tells.
HARDWARE = {"0.5B": (2, 24), "1.5B": (4, 40), "3B": (8, 40), "7B": (8, 80), "14B": (8, 80), "32B": (16, 80)}
OF_PPO = {"0.5B": (4, 24), "32B": (64, 80)}  # with a critic beside the policy


def verdict(path, devices, gib):
    rows = {row[0]: row[1:] for row in plan_of_file(str(path), Machine(devices, gib << 30))}
    said, note = rows["fits as written"]
    return said, float(note.split()[0])


@pytest.mark.parametrize("path", GPU_FILES, ids=lambda path: path.stem)
def test_a_gpu_file_fits_the_hardware_that_its_header_names(path):
    (line,) = [line for line in path.read_text().splitlines() if line.startswith(PLANNED)]
    devices, gib, planned = map(int, re.search(r"(\d+) GPUs of (\d+) GiB: (\d+) GiB", line).groups())
    assert verdict(path, devices, gib) == ("yes", pytest.approx(planned, abs=0.51))


@pytest.mark.parametrize(
    ("path", "size"),
    [
        pytest.param(
            path, size, id=f"{path.stem}-{size}", marks=() if at % len(HARDWARE) == number else pytest.mark.slow
        )
        for at, path in enumerate(GPU_FILES)
        for number, size in enumerate(HARDWARE)
    ],
)
def test_a_file_for_every_size_can_be_written_that_fits(path, size, tmp_path):
    devices, gib = (HARDWARE | OF_PPO if path.name.startswith("ppo") else HARDWARE)[size]
    out = tmp_path / "mine.yaml"
    line = write_planned(str(path), Machine(devices, gib << 30, model=f"Qwen2.5-{size}"), out)
    planned = int(re.search(r"(\d+) GiB on each", line)[1])
    assert verdict(out, devices, gib) == ("yes", pytest.approx(planned, abs=0.51))
    written, kept = read_yaml(out), read_yaml(path)
    named = next(written[key] for key in ("actor_model_name_or_path", "model_name_or_path") if key in written)
    assert f"qwen2.5-{size}".lower() in named.lower()
    assert written["learning_rate"] == kept["learning_rate"]
    per_step = [
        next(row[1] for row in plan_of_file(str(file), Machine(devices)) if row[0].endswith("per optimizer step"))
        for file in (out, path)
        if "gradient_accumulation_steps" in kept
    ]
    assert len({*per_step}) <= 1


def test_overrides_are_written_as_they_are_read(tmp_path):
    out = tmp_path / "mine.yaml"
    recipe = str(FOLDER / "grpo_grrm_argument.yaml")
    write_planned(recipe, Machine(8, 80 << 30), tmp_path / "empty.yaml", ["--eos_token", "", "--balance_batch"])
    config = prepare(RLConfig, tmp_path / "empty.yaml", check_machine=False).config
    assert (config.eos_token, config.balance_batch) == ("", True)
    texts = {"output_dir": "a # b: c", "mini_batch_size": "64", "actor_model_name_or_path": "yes", "seed": "7"}
    overrides = [word for name, text in texts.items() for word in (f"--{name}", text)]
    write_planned(recipe, Machine(8, 80 << 30, model="Qwen2.5-7B"), out, overrides)
    values = read_yaml(out)
    assert (values["output_dir"], values["actor_model_name_or_path"], values["seed"]) == ("a # b: c", "yes", 7)
    assert values["global_mini_batch_size"] == 64
    assert "mini_batch_size" not in values
    for number, text in enumerate(("2026-11-29", "010", "1:30", "1_000", "yes", "1e-5", "1.10", "[a, b]", "null")):
        planned = tmp_path / f"{number}.yaml"
        write_planned(recipe, Machine(8, 80 << 30, model="Qwen2.5-7B"), planned, ["--run_name", text])
        assert str(read_yaml(planned)["run_name"]) == {"[a, b]": "['a', 'b']", "null": "None"}.get(text, text)


@pytest.mark.parametrize(
    ("gib", "overrides"),
    [
        (40, ["--recompute_granularity", "core_attn"]),
        (80, ["--sharding_parallel_degree", "2"]),
        (40, ["--sharding_parallel_degree", "8"]),
    ],
)
def test_a_planned_file_has_the_layout_that_fits_whatever_the_file_had(tmp_path, gib, overrides):
    recipe, out = str(FOLDER / "grpo_grrm_argument.yaml"), tmp_path / "mine.yaml"
    write_planned(recipe, Machine(8, gib << 30), out, overrides)
    assert verdict(out, 8, gib)[0] == "yes"


def test_values_of_any_form_are_replaced_and_comments_stay(tmp_path):
    recipe, out = tmp_path / "recipe.yaml", tmp_path / "mine.yaml"
    recipe_text = (FOLDER / "grpo_grrm_argument.yaml").read_text().replace("use_rm_server: true", "")
    sources = "reward_sources: # judges\n  - judge: chrf\n  # the other\n  - judge: consensus\n"
    recipe.write_text(f"{recipe_text}{sources}# of the run\nrun_name: 'a # b' # name\n")
    overrides = ["--reward_sources", "[{judge: chrf}]", "--run_name", "c", "--reward_server", "null"]
    write_planned(str(recipe), Machine(8, 80 << 30), out, overrides)
    assert out.read_text().endswith("reward_sources: [{judge: chrf}]\n# of the run\nrun_name: c # name\n")
    out.with_suffix(".json").write_text(json.dumps(read_yaml(out)))
    with pytest.raises(UserError, match="not JSON: rewrite it so"):
        write_planned(str(out.with_suffix(".json")), Machine(8, 80 << 30), tmp_path / "other.yaml")


def test_a_planned_file_is_not_written_over_another_nor_where_nothing_fits(tmp_path):
    recipe, out = str(FOLDER / "grpo_grrm_argument.yaml"), tmp_path / "mine.yaml"
    with pytest.raises(UserError, match="needs --memory"):
        write_planned(recipe, Machine(8), out)
    with pytest.raises(UserError, match="does not fit 2 devices of 24 GiB"):
        write_planned(recipe, Machine(2, 24 << 30), out)
    assert not out.exists()
    out.write_text("mine")
    with pytest.raises(UserError, match="exists already"):
        write_planned(recipe, Machine(8, 80 << 30), out)
