"""Layers divided among two processes train the policy that one process trains."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from support.rl_processes import (
    TinyWorld,
    entry_command,
    held_out_settings,
    metrics_of,
    on_ranks,
    one_rank,
    rollouts_of,
    run,
    two_ranks,
)
from support.tiny_policy import write_policy

from grrm.models.policy import load_policy

pytestmark = pytest.mark.slow


def test_tensor_ranks_give_the_groups_rewards_advantages_losses_and_weights_of_one_process(
    world: TinyWorld, tmp_path: Path
) -> None:
    settings = {"global_mini_batch_size": "2", "max_steps": "4", "save_steps": "4", "learning_rate": "0.02"}
    settings |= {"kl_loss_coeff": "0.1", "sft_coeff": "0.1", "entropy_coeff": "0.1"}  # a loss that is not near zero
    run(one_rank(entry_command(world, tmp_path / "one", **settings)))
    divided = entry_command(world, tmp_path / "two", **settings, tensor_parallel_degree="2")
    run(two_ranks(divided, tmp_path / "logs"))

    assert rollouts_of(tmp_path / "one") == rollouts_of(tmp_path / "two")
    assert any(group["candidates"][0]["advantage"] for group in rollouts_of(tmp_path / "one"))
    one, two = metrics_of(tmp_path / "one"), metrics_of(tmp_path / "two")
    assert len(one) == 4
    assert all(abs(line["loss"]) > 0.1 for line in one)
    for left, right in zip(one, two, strict=True):
        assert left["loss"] == pytest.approx(right["loss"], abs=1e-5)
        assert left["reward_mean"] == right["reward_mean"]
    left, right = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert left.keys() == right.keys()
    for name, weight in left.items():
        np.testing.assert_allclose(right[name], weight, atol=1e-4, err_msg=name)
    saved = load_policy(tmp_path / "two/checkpoint-4").state_dict()  # as one process reads it
    for name, weight in right.items():
        np.testing.assert_array_equal(saved[name].numpy(), weight, err_msg=name)


def test_tensor_ranks_train_a_qwen3_as_one_process_does(world: TinyWorld, tmp_path: Path) -> None:
    policy = tmp_path / "policy"
    shutil.copytree(world.policy, policy)
    write_policy(policy, model_type="qwen3", head_dim=24)
    qwen3 = TinyWorld(world.folder, policy, world.rl_data)
    settings = {"max_steps": "3", "save_strategy": "no", "learning_rate": "0.02", "sft_coeff": "0.1"}
    run(one_rank(entry_command(qwen3, tmp_path / "one", **settings)))
    run(two_ranks(entry_command(qwen3, tmp_path / "two", **settings, tensor_parallel_degree="2"), tmp_path / "logs"))
    assert rollouts_of(tmp_path / "one") == rollouts_of(tmp_path / "two")
    before, left, right = (load_file(tmp_path / name / "model.safetensors") for name in ("policy", "one", "two"))
    for name, weight in left.items():
        assert np.abs(weight - before[name]).max() > 1e-3, name
        np.testing.assert_allclose(right[name], weight, atol=1e-4, err_msg=name)
    assert sum("k_norm" in name for name in left) == load_policy(tmp_path / "two").config.num_hidden_layers


def test_tensor_ranks_that_sample_together_evaluate_what_one_process_evaluates(
    world: TinyWorld, tmp_path: Path
) -> None:
    settings = {**held_out_settings(world, tmp_path, n_rows=1), "max_steps": "2", "save_steps": "2"}
    run(one_rank(entry_command(world, tmp_path / "one", **settings)))
    together = {"tensor_parallel_degree": "2", "rollout_tensor_parallel_degree": "2"}
    command = entry_command(world, tmp_path / "two", **settings, **together)
    run(two_ranks(command, tmp_path / "logs"))  # of one row, so that one rank has nothing to translate
    assert rollouts_of(tmp_path / "one") == rollouts_of(tmp_path / "two")
    one, two = (
        [{key: value for key, value in line.items() if key.startswith("eval_")} for line in metrics_of(tmp_path / name)]
        for name in ("one", "two")
    )
    assert one == two
    assert "eval_chrf_greedy" in one[-1]


def test_four_tensor_ranks_sample_batches_of_fewer_prompts_together_and_a_step_ahead(
    world: TinyWorld, tmp_path: Path
) -> None:
    policy = tmp_path / "policy"
    shutil.copytree(world.policy, policy)
    write_policy(policy, num_key_value_heads=4)
    divisible = TinyWorld(world.folder, policy, world.rl_data)
    steps = {"max_steps": "2", "save_strategy": "no", "rollout_ahead": "1"}
    few = {"global_batch_size": "2", "dynamic_sampling": "true", "global_gen_batch_size": "2", "max_gen_batches": "20"}
    run(one_rank(entry_command(divisible, tmp_path / "one", **steps, **few)))
    layout = {"tensor_parallel_degree": "4", "sequence_parallel": "true", "rollout_tensor_parallel_degree": "4"}
    command = entry_command(divisible, tmp_path / "four", **steps, **few, **layout)
    run(on_ranks(4, command, tmp_path / "logs"))
    assert rollouts_of(tmp_path / "one") == rollouts_of(tmp_path / "four")
    for ours, theirs in zip(metrics_of(tmp_path / "four"), metrics_of(tmp_path / "one"), strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-5)
