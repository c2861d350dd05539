"""PaddleNLP's own RL argument files run on CPU processes, changed in no more than what a machine has to decide."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import requests
from safetensors.numpy import load_file
from support.argument_files import FILES, write_paddlenlp_file
from support.reward_servers import reward_server
from support.rl_processes import SCRIPTS, TinyWorld, metrics_of, on_ranks, run
from support.tiny_policy import write_policy

pytestmark = pytest.mark.slow

# Model, data, output, server and device, which the test adds, and these: lengths and batch sizes.
LENGTHS = {"max_prompt_len": "96", "max_dec_len": "12", "min_dec_len": "1", "max_length": "108", "max_steps": "2"}
SIZES = {"global_batch_size": "4", "global_mini_batch_size": "2", "rollout_n": "4"}
WITH_SERVER = {"use_rule_reward": "false", "use_rm_server": "true"}  # the file's rule needs questions with answers
ROWS = ("per_device_logprob_batch_size", "per_device_train_batch_size", "per_device_eval_batch_size")


@pytest.mark.parametrize("name", FILES)
def test_file_runs_with_its_tensor_and_sequence_parallelism(name: str, world: TinyWorld, tmp_path: Path) -> None:
    n_ranks = FILES[name]["tensor_parallel_degree"]
    policy = tmp_path / "policy"
    shutil.copytree(world.policy, policy)
    write_policy(policy, num_key_value_heads=n_ranks)
    with reward_server() as (_, url):
        changes = {
            "actor_model_name_or_path": str(policy),
            "train_datasets": str(world.rl_data),
            "eval_datasets": str(world.rl_data),
            "output_dir": str(tmp_path / "out"),
            "logging_dir": str(tmp_path / "logging"),
            "reward_server": url,
            "device": "cpu",
            **LENGTHS,
            **SIZES,
            **dict.fromkeys(ROWS, "4"),
            **(WITH_SERVER | {"critic_model_name_or_path": str(policy)} if name == "ppo_argument" else {}),
        }
        overrides = [text for key, value in changes.items() for text in (f"--{key}", value)]
        command = [str(SCRIPTS / "run_rl.py"), str(write_paddlenlp_file(name, tmp_path)), *overrides]
        done = run(on_ranks(n_ranks, command, tmp_path / "logs"))
        counted = requests.get(f"{url}/metrics", timeout=120).text
    evaluations = sorted((tmp_path / "out/held_out").iterdir())
    assert [path.name for path in evaluations] == ["step000000.jsonl", "step000002.jsonl"]
    n_evaluated = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in evaluations)
    # Those of one rollout and of both evaluations, each asked for once, by one of the tensor ranks.
    assert f"\ngrrm_groups_total {4 + n_evaluated}.0\n" in counted
    assert [line["step"] for line in metrics_of(tmp_path / "out") if "loss" in line] == [1, 2]
    before, after = (load_file(folder / "model.safetensors") for folder in (policy, tmp_path / "out"))
    assert before.keys() == after.keys()
    said = done.stdout + done.stderr
    assert ("report_to names wandb, whose package is not installed" in said) == (name == "grpo_argument")
    assert ("offload_optim has nowhere to offload to on a CPU" in said) == ("32b" in name)
