"""A run with a mixture of experts, which PaddleNLP cannot do: sampling, training and evaluation agree."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from support.rl_processes import TinyWorld, entry_command, held_out_settings, metrics_of, train_rl
from support.tiny_models import EXPERTS
from support.tiny_policy import write_policy


def test_what_experts_sample_has_the_log_probs_of_the_training_pass_and_they_learn(
    world: TinyWorld, tmp_path: Path
) -> None:
    policy, output = tmp_path / "policy", tmp_path / "out"
    shutil.copytree(world.policy, policy)
    write_policy(policy, model_type="qwen2_moe", **EXPERTS)
    settings = {"max_steps": "2", "save_steps": "2", "reward_sources": json.dumps([{"judge": "chrf"}])}
    settings |= held_out_settings(world, tmp_path, n_rows=2)
    train_rl(entry_command(TinyWorld(world.folder, policy, world.rl_data), output, **settings))
    lines = metrics_of(output)
    gaps = [line["logprob_gap_max"] for line in lines if "loss" in line]
    assert len(gaps) == 2
    assert 0 < max(gaps) <= 1e-4
    assert "eval_chrf_greedy" in lines[-1]
    before, after = (load_file(folder / "model.safetensors") for folder in (policy, output))
    assert before.keys() == after.keys()
    for name, weight in after.items():
        assert np.abs(weight - before[name]).max() > 1e-4, name
