"""A run that is interrupted and resumed ends where an uninterrupted one does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from support.rl_processes import TinyWorld, entry_command, metrics_of, one_rank, rollouts_of, run, two_ranks


def weights(folder: Path) -> dict[str, np.ndarray]:
    return load_file(next(folder.glob("*.safetensors")))


def same_weights(left: Path, right: Path) -> bool:
    first, second = weights(left), weights(right)
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.slow
def test_four_steps_equal_two_and_two_more(world: TinyWorld, tmp_path: Path) -> None:
    steps = {"save_steps": "2", "lr_scheduler_type": "constant"}
    run(one_rank(entry_command(world, tmp_path / "whole", max_steps="4", **steps)))
    run(one_rank(entry_command(world, tmp_path / "parts", max_steps="2", **steps)))
    assert not same_weights(tmp_path / "whole", tmp_path / "parts")
    run(one_rank(entry_command(world, tmp_path / "parts", max_steps="4", **steps)))

    assert same_weights(tmp_path / "whole", tmp_path / "parts")
    assert rollouts_of(tmp_path / "whole") == rollouts_of(tmp_path / "parts")
    assert [line["step"] for line in metrics_of(tmp_path / "parts")] == [1, 2, 3, 4]


@pytest.mark.slow
def test_two_ranks_resume_with_dynamic_sampling_where_the_prompts_stood(world: TinyWorld, tmp_path: Path) -> None:
    steps = {"save_steps": "1", "dynamic_sampling": "true", "global_gen_batch_size": "2", "max_gen_batches": "20"}
    run(two_ranks(entry_command(world, tmp_path / "whole", max_steps="2", **steps), tmp_path / "logs"))
    run(two_ranks(entry_command(world, tmp_path / "parts", max_steps="1", **steps), tmp_path / "logs"))
    run(two_ranks(entry_command(world, tmp_path / "parts", max_steps="2", **steps), tmp_path / "logs"))

    assert same_weights(tmp_path / "whole", tmp_path / "parts")
    assert rollouts_of(tmp_path / "whole") == rollouts_of(tmp_path / "parts")


def test_a_checkpoint_cut_short_by_a_crash_is_passed_over(world: TinyWorld, tmp_path: Path) -> None:
    steps = {"save_steps": "1", "max_steps": "1"}
    run(one_rank(entry_command(world, tmp_path, **steps)))
    (tmp_path / "checkpoint-7").mkdir()
    done = run(one_rank(entry_command(world, tmp_path, **{**steps, "max_steps": "2"})))
    assert [line["step"] for line in metrics_of(tmp_path)] == [1, 2]
    assert "checkpoint-7" not in done.stderr


@pytest.mark.slow
def test_a_finished_run_started_again_keeps_its_weights(world: TinyWorld, tmp_path: Path) -> None:
    command = one_rank(entry_command(world, tmp_path, max_steps="2", save_steps="2", warmup_steps="0"))
    run(command)
    trained = weights(tmp_path)
    assert any(not np.array_equal(trained[name], before) for name, before in weights(world.policy).items())
    next(tmp_path.glob("*.safetensors")).unlink()  # as when it was stopped after its last checkpoint
    run(command)
    again = weights(tmp_path)
    assert again.keys() == trained.keys()
    assert all(np.array_equal(again[name], trained[name]) for name in trained)
