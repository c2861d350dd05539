"""LoRA: few weights are trained and saved, samples come from merged ones, and what is left in the end is whole."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file
from support.rl_processes import CONFIGS, TinyWorld, entry_command, metrics_of, one_rank, rollouts_of, run, two_ranks
from support.tiny_policy import write_tiny_checkpoint

from grrm.config import RewardModelConfig, RLConfig, SFTConfig
from grrm.config.checks import Launch
from grrm.config.load import prepare
from grrm.engine.api import SamplingParams
from grrm.engine.paddle.engine import PaddleEngine
from grrm.engine.paddle.policy_engines import MergedEngine
from grrm.errors import UserError
from grrm.models.lora import check_same_adapters, merged, with_adapters, without_adapters
from grrm.models.policy import load_policy

TARGETS = ["q_proj", "v_proj", "down_proj"]
LORA = {"lora": "true", "lora_rank": "4", "lora_target_modules": '["q_proj", "v_proj", "down_proj"]'}
SETTINGS = SimpleNamespace(lora=True, lora_rank=4, lora_alpha=8, lora_target_modules=TARGETS)
PARAMS = SamplingParams(max_new_tokens=8, temperature=1.0, seed=3)
PROMPTS = [[5, 9, 200, 31], [17, 4]]


@pytest.fixture
def adapted(tmp_path):
    """A policy whose adapters have been moved, so that they matter."""
    model = with_adapters(load_policy(write_tiny_checkpoint(tmp_path / "policy")), SETTINGS, "float32", 7)
    draw = np.random.default_rng(2)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.set_value(paddle.to_tensor(draw.normal(0, 0.3, parameter.shape).astype("float32")))
    model.eval()
    return model


def numbers(model) -> dict[str, np.ndarray]:
    return {name: value.numpy().copy() for name, value in model.state_dict().items()}


def test_only_adapters_are_trained_and_the_seed_draws_them(tmp_path):
    folder = write_tiny_checkpoint(tmp_path / "policy")
    first, again, other = (with_adapters(load_policy(folder), SETTINGS, "float32", seed).model for seed in (7, 7, 8))
    trained = {name for name, one in first.named_parameters() if not one.stop_gradient}
    assert {name.rpartition(".")[2] for name in trained} == {"lora_A", "lora_B"}
    assert {name.split(".")[-2] for name in trained} == set(TARGETS)
    name = next(name for name in trained if name.endswith("lora_A"))
    assert np.array_equal(numbers(first)[name], numbers(again)[name])
    assert not np.array_equal(numbers(first)[name], numbers(other)[name])


def test_samples_come_from_merged_weights_which_leave_no_trace(adapted):
    before = numbers(adapted.model)
    drawn = MergedEngine(adapted).generate(PROMPTS, PARAMS)
    assert all(np.array_equal(value, before[name]) for name, value in numbers(adapted.model).items())
    base = PaddleEngine(adapted.model).generate(PROMPTS, PARAMS)
    whole = PaddleEngine(without_adapters(adapted)).generate(PROMPTS, PARAMS)
    assert [one.token_ids for one in drawn] == [one.token_ids for one in whole]
    assert [one.logprobs for one in drawn] != [one.logprobs for one in base]


def test_a_merged_model_computes_what_the_adapters_add(tmp_path, adapted):
    row = paddle.to_tensor([[5, 9, 200, 31]])
    inputs = {"positions_N": paddle.arange(4), "position_ids": paddle.arange(4).unsqueeze(0)}
    apart = adapted(row, **inputs).hidden_NH.numpy()
    with merged(adapted):
        together = adapted(row, **inputs).hidden_NH.numpy()
    np.testing.assert_allclose(apart, together, atol=2e-6)
    plain = without_adapters(adapted)
    np.testing.assert_array_equal(plain(row, **inputs).hidden_NH.numpy(), together)
    assert plain.state_dict().keys() == load_policy(tmp_path / "policy").state_dict().keys()


def test_targets_that_are_not_there_and_other_adapters_in_a_checkpoint_are_refused(tmp_path, adapted):
    wrong = SimpleNamespace(**{**vars(SETTINGS), "lora_target_modules": ["q_proj", "query"]})
    with pytest.raises(UserError, match="names query, which the model has not: it has down_proj, gate_proj"):
        with_adapters(load_policy(write_tiny_checkpoint(tmp_path / "other")), wrong, "float32", 7)
    adapted.save_pretrained(str(tmp_path / "checkpoint-1"))
    other_order = SimpleNamespace(**{**vars(SETTINGS), "lora_target_modules": TARGETS[::-1]})
    check_same_adapters(tmp_path / "checkpoint-1", other_order)
    others = SimpleNamespace(**{**vars(SETTINGS), "lora_target_modules": ["q_proj", "k_proj", "down_proj"]})
    with pytest.raises(UserError, match=r"on down_proj, q_proj, v_proj, this run is .* on down_proj, k_proj, q_proj"):
        check_same_adapters(tmp_path / "checkpoint-1", others)
    larger = SimpleNamespace(**{**vars(SETTINGS), "lora_rank": 16})
    with pytest.raises(UserError, match=r"saved with LoRA of rank 4, .* this run is with LoRA of rank 16"):
        check_same_adapters(tmp_path / "checkpoint-1", larger)
    with pytest.raises(UserError, match="this run is without LoRA"):
        check_same_adapters(tmp_path / "checkpoint-1", SimpleNamespace(lora=False))


@pytest.mark.parametrize(
    ("stage", "file", "settings", "message"),
    [
        (RLConfig, "grpo_grrm_tiny_argument.yaml", {"lora_rank": "4"}, "lora_rank has no effect without lora"),
        (
            RLConfig,
            "grpo_grrm_tiny_argument.yaml",
            {"frozen_layers": "1"},
            "not supported with frozen_layers 1",
        ),
        (SFTConfig, "sft_tiny_argument.yaml", {}, "lora is not supported with init_from_config"),
        (RewardModelConfig, "rm_tiny_argument.yaml", {"backbone_learning_rate": "0"}, "with backbone_learning_rate 0"),
        (RLConfig, "grpo_grrm_tiny_argument.yaml", {"lora_target_modules": "[]"}, "nothing to train"),
    ],
)
def test_what_lora_is_not_combined_with_is_refused(stage, file, settings, message):
    chosen = settings if "lora_rank" in settings else {"lora": "true", **settings}
    overrides = [text for key, value in chosen.items() for text in (f"--{key}", value)]
    with pytest.raises(UserError, match=message):
        prepare(stage, CONFIGS / file, overrides, Launch(), check_machine=False)


def policy_files(folder: Path) -> dict[str, np.ndarray]:
    return load_file(next(folder.glob("*.safetensors")))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unified", "file"),
    [("false", "lora_model_state.pdparams"), ("true", "peft_model-00001-of-00001.safetensors")],
)
def test_an_rl_run_saves_small_checkpoints_resumes_from_them_and_leaves_a_whole_policy(
    world: TinyWorld, tmp_path: Path, unified: str, file: str
) -> None:
    steps = {**LORA, "save_steps": "2", "lr_scheduler_type": "constant", "unified_checkpoint": unified}
    run(one_rank(entry_command(world, tmp_path / "whole", max_steps="4", **steps)))
    run(one_rank(entry_command(world, tmp_path / "parts", max_steps="2", **steps)))
    run(one_rank(entry_command(world, tmp_path / "parts", max_steps="4", **steps)))
    assert rollouts_of(tmp_path / "whole") == rollouts_of(tmp_path / "parts")
    whole, parts, base = (policy_files(folder) for folder in (tmp_path / "whole", tmp_path / "parts", world.policy))
    assert whole.keys() == parts.keys() == base.keys()
    assert all(np.array_equal(whole[name], parts[name]) for name in whole)
    changed = {name.split(".")[-2] for name in base if not np.array_equal(base[name], whole[name])}
    assert changed == set(TARGETS)
    saved = {path.name for path in (tmp_path / "whole/checkpoint-4").iterdir()}
    assert file in saved
    assert not saved & {"model_state.pdparams", "model.safetensors"}
    projections = [value for name, value in base.items() if name.split(".")[-2] in TARGETS and value.ndim == 2]
    n_adapters = sum(4 * sum(value.shape) for value in projections)
    size = (tmp_path / "whole/checkpoint-4" / file).stat().st_size
    assert size < 4 * n_adapters + 4096
    assert max(line["logprob_gap_max"] for line in metrics_of(tmp_path / "whole")) < 1e-4


@pytest.mark.slow
def test_two_ranks_train_the_adapters_that_one_rank_does(world: TinyWorld, tmp_path: Path) -> None:
    run(one_rank(entry_command(world, tmp_path / "one", **LORA)))
    run(two_ranks(entry_command(world, tmp_path / "two", **LORA), tmp_path / "logs"))
    one, two = policy_files(tmp_path / "one"), policy_files(tmp_path / "two")
    assert all(np.allclose(one[name], two[name], atol=1e-5) for name in one)
    assert rollouts_of(tmp_path / "one")[:4] == rollouts_of(tmp_path / "two")[:4]
