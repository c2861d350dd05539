"""The entry scripts as processes and in this one, with settings small enough for a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.rows import write_jsonl

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "llm/alignment/grrm"
CONFIGS = ROOT / "llm/config/qwen"
MODEL = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
}
RL_SETTINGS = {
    "use_rm_server": "false",
    "reward_server": "null",
    "report_to": "none",
    "max_steps": "3",
    "save_steps": "3",
    "global_batch_size": "4",
    "rollout_n": "4",
    "per_device_train_batch_size": "8",
    "max_dec_len": "12",
    "max_length": "108",
    "console_groups": "0",
    "learning_rate": "0.01",
    "held_out": "0",
}


@dataclass(frozen=True)
class TinyWorld:
    """Where the pieces of a run lie."""

    folder: Path
    policy: Path
    rl_data: Path


def entry_command(
    world: TinyWorld, output: Path, yaml: str = "grpo_grrm_tiny_argument.yaml", **settings: str
) -> list[str]:
    """The command line of one RL run, without interpreter or launcher."""
    values = {
        **RL_SETTINGS,
        "actor_model_name_or_path": str(world.policy),
        "train_datasets": str(world.rl_data),
        "output_dir": str(output),
        **settings,
    }
    overrides = [text for key, value in values.items() for text in (f"--{key}", value)]
    return [str(SCRIPTS / "run_rl.py"), str(CONFIGS / yaml), *overrides]


def held_out_settings(world: TinyWorld, folder: Path, references: bool = True, n_rows: int = 12) -> dict[str, str]:
    """Settings of a run that evaluates a few rows, made in `folder`, after every step."""
    rows = [json.loads(line) for line in world.rl_data.read_text().splitlines()[-n_rows:]]
    if not references:
        rows = [{**row, "tgt": json.dumps({**json.loads(row["tgt"]), "reference": None})} for row in rows]
    path = write_jsonl(folder / "held_out.jsonl", rows)
    return {"eval_datasets": str(path), "evaluation_strategy": "steps", "eval_steps": "1", "eval_samples": "2"}


def one_rank(command: list[str]) -> list[str]:
    """Run on one process."""
    return [sys.executable, *command]


def two_ranks(command: list[str], logs: Path) -> list[str]:
    """Run on two processes through Paddle's launcher."""
    return on_ranks(2, command, logs)


def on_ranks(n: int, command: list[str], logs: Path) -> list[str]:
    """Run on `n` processes, through Paddle's launcher where that is more than one."""
    if n == 1:
        return one_rank(command)
    launcher = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", str(n), "--log_dir", str(logs)]
    return [*launcher, *command]


def environment() -> dict[str, str]:
    """One thread per process: the same arithmetic with one rank and with two."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def run(command: list[str], timeout_s: float = 600, expect: int | None = 0) -> subprocess.CompletedProcess[str]:
    """Run to the end; the output, and the end of every rank's log, is shown when the status is not the expected one."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, env=environment(), cwd=ROOT, check=False
    )
    if expect is not None and done.returncode != expect:
        pytest.fail(f"exit status {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}\n{_logs(command)}")
    return done


def _logs(command: list[str]) -> str:
    """The end of what each rank wrote, last of all: of a long message, the end is what is kept."""
    if "--log_dir" not in command:
        return ""
    folder = Path(command[command.index("--log_dir") + 1])
    return "\n".join(f"{log.name}:\n{log.read_text()[-2000:]}" for log in sorted(folder.glob("workerlog.*")))


def train_here(train: Callable[[Any], object], config: Any) -> None:
    """Train in this process as a process of its own would, but leave PaddleNLP's classes as they are for other tests.

    A checkpoint goes by the names of weights, which Paddle counts.
    """
    import paddle

    from grrm.training import supervised_run

    with paddle.utils.unique_name.guard(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervised_run, "use_cpu_layers", lambda *_: None)
        train(config)


def train_rl(command: list[str]) -> None:
    """Train in this process what `entry_command` says."""
    from grrm.config import RLConfig, load_config
    from grrm.rl.run import train

    train_here(train, load_config(RLConfig, command[1], command[2:]))


def metrics_of(output: Path) -> list[dict]:
    """The run's metrics.jsonl."""
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


def rollouts_of(output: Path) -> list[dict]:
    """Every dumped rollout group."""
    return [json.loads(line) for line in (output / "rollouts/rollouts-rank000.jsonl").read_text().splitlines()]


def killed_at(event: str, pattern: str, command: list[str]) -> list[str]:
    """`command` for `one_rank` or `two_ranks`, whose processes are killed by SIGKILL at an event; see killed_at.py."""
    return [str(Path(__file__).with_name("killed_at.py")), event, pattern, *command]
