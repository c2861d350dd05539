"""Seconds of a training step of the ranker, of this project's trainer and of the same in PyTorch.

    bash benchmarks/peers/set_up.sh                              # once: torch
    python benchmarks/ranker_step.py [--rounds 5] [--steps 4] [--threads 1] [--compare none,group] [--out FILE]

24 groups of eight candidates a step, no two alike, on the demo's model with random weights: prompts of 30 to 40 random
tokens, candidates of 6 to 25, those of a group about as long. `none` judges each candidate by itself, `group` lets them
see each other.

`ours` is the trainer as it runs, `torch` benchmarks/peers/ranker_worker.py, a plain loop: both get the same weights and
groups, both clip gradients and take a step of AdamW, and the losses of their first steps have to be the same. Each is a
process with one thread, as `make demo` has two of.

They take turns at a few steps; medians are reported, and the median of what each round's two turns give as a ratio. CPU
seconds are told too: where others want the cores as well, their ratio is the one to trust.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from machine import ROOT, command_line, describe_machine, write_result
from processes import Worker, answer, peers_home

PEER = ROOT / "benchmarks/peers/ranker_worker.py"
ARGUMENTS = ROOT / "llm/config/qwen/ranker_tiny_argument.yaml"
COMPARE = ("none", "group")
N_GROUPS, GROUP_SIZE, N_BATCHES = 24, 8, 10
CLOCKS = ("seconds", "cpu_seconds")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, "ranker_step")
    parser.add_argument("--rounds", type=int, default=5, help="turns of both (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=4, help="steps of a turn (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each (default: %(default)s)")
    parser.add_argument("--compare", default=",".join(COMPARE), help="forms of the ranker (default: %(default)s)")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        folder, compare = options.worker
        train(Path(folder), compare)
        return
    forms = options.compare.split(",")
    if min(options.rounds, options.steps, options.threads) < 1 or not {*forms} <= {*COMPARE}:
        parser.error(f"--rounds, --steps and --threads must be at least 1, --compare some of {','.join(COMPARE)}")
    peer = peers_home() / "venv/bin/python"
    if not peer.exists():
        print("Rankers are not compared: run `bash benchmarks/peers/set_up.sh` first.")
        return
    machine = describe_machine()
    rows = [row for form in forms for row in measure(form, peer, options.rounds, options.steps, str(options.threads))]
    write_result(options.out, {"machine": machine, "rows": rows})
    for row in rows:
        figures = f"{row['seconds_per_step']:8.3f} s a step, {row['relative_to_torch']:.2f} of torch's"
        print(f"{row['compare']:<6}{row['engine']:<6}{figures} ({row['cpu_relative_to_torch']:.2f} in CPU seconds)")


def measure(compare: str, peer: Path, rounds: int, steps: int, threads: str) -> list[dict[str, Any]]:
    """Seconds of a step of both. Raises SystemExit where they do not compute the same."""
    with tempfile.TemporaryDirectory() as name:
        ours = Worker([sys.executable, __file__, "--worker", name, compare], threads)  # writes what torch reads
        workers = {"ours": ours, "torch": Worker([peer, PEER, name], threads)}
        warm = {engine: worker.ask({"steps": 1}) for engine, worker in workers.items()}
        check_losses(*(answer["losses"] for answer in warm.values()))
        turns = [{engine: worker.ask({"steps": steps}) for engine, worker in workers.items()} for _ in range(rounds)]
        for worker in workers.values():
            worker.close()
    return [_row(engine, compare, turns, steps, threads) for engine in workers]


def _row(
    engine: str, compare: str, turns: Sequence[dict[str, dict[str, Any]]], steps: int, threads: str
) -> dict[str, Any]:
    took = {clock: [turn[engine][clock] / steps for turn in turns] for clock in CLOCKS}
    ratios = {clock: [turn[engine][clock] / turn["torch"][clock] for turn in turns] for clock in CLOCKS}
    return {
        "engine": engine,
        "compare": compare,
        "threads": int(threads),
        "groups": N_GROUPS,
        "group_size": GROUP_SIZE,
        **{f"{clock}_per_step": median(took[clock]) for clock in CLOCKS},
        "slowest": max(took["seconds"]),
        "fastest": min(took["seconds"]),
        "rounds": len(turns),
        "steps_a_round": steps,
        "relative_to_torch": median(ratios["seconds"]),
        "cpu_relative_to_torch": median(ratios["cpu_seconds"]),
    }


def check_losses(ours: Sequence[float], theirs: Sequence[float]) -> None:
    """Raises SystemExit where the first losses differ, the second by more than AdamW makes of rounding."""
    for number, (our_loss, their_loss) in enumerate(zip(ours[:2], theirs[:2], strict=True)):
        if not math.isclose(our_loss, their_loss, rel_tol=(1e-4, 1e-2)[number]):
            sys.exit(
                f"step {number + 1} has the loss {our_loss} here, {their_loss} in torch: they are not the same ranker"
            )


def write_task(folder: Path, compare: str) -> None:
    """A ranker with random weights in `folder`/model, and groups in `folder`/task.json, for both."""
    from tiny_step import build_model

    from grrm.models.policy import load_policy
    from grrm.models.reward_models import save_reward_model, with_new_head

    build_model().save_pretrained(str(folder / "backbone"), safe_serialization=True)
    save_reward_model(with_new_head("ranker", load_policy(folder / "backbone"), compare=compare), folder / "model")
    (folder / "out").mkdir()
    task = {
        "groups": random_groups(N_BATCHES * N_GROUPS),
        "batch": N_GROUPS,
        "learning_rate": 1e-3,
        "backbone_learning_rate": 2e-4,
        "squared_weight": 0.2,
    }
    (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")


def random_groups(n_groups: int) -> list[dict[str, Any]]:
    """Groups with gold from 0 to 10."""
    import numpy as np

    rng = np.random.default_rng(1)
    groups = []
    for _ in range(n_groups):
        lengths_G = np.clip(rng.integers(8, 24) + rng.integers(-3, 4, GROUP_SIZE), 6, 25)
        groups.append(
            {
                "prompt": rng.integers(5, 2048, rng.integers(30, 41)).tolist(),
                "responses": [rng.integers(5, 2048, length).tolist() for length in lengths_G],
                "gold": (rng.integers(0, 101, GROUP_SIZE) / 10).tolist(),
            }
        )
    return groups


def train(folder: Path, compare: str) -> None:
    """This project's trainer as a worker: the protocol of benchmarks/peers/ranker_worker.py."""
    from grrm.startup import configure_process

    configure_process()
    from paddlenlp.trainer import TrainerCallback

    from grrm.config import RewardModelConfig, load_config
    from grrm.config.training_arguments import training_arguments
    from grrm.models.cpu_layers import use_cpu_layers
    from grrm.models.reward_models import load_reward_model
    from grrm.models.value_head import CandidateGroup
    from grrm.reward_model.trainer import RewardModelTrainer
    from grrm.startup import freeze_gc
    from grrm.training.callbacks import quiet_paddlenlp
    from grrm.training.gold_groups import GoldGroup

    class Clock(TrainerCallback):
        """Waits at the end of a turn until it is told how many steps the next one has."""

        remaining = 1

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.remaining -= 1
            losses.append(trainer.last_loss)
            if self.remaining:
                return
            if state.global_step == 1:
                answer("ready")
            else:
                seconds, cpu_seconds = time.perf_counter() - self.wall, time.process_time() - self.cpu
                answer({"seconds": seconds, "cpu_seconds": cpu_seconds, "losses": losses})
                losses.clear()
            line = sys.stdin.readline()
            control.should_training_stop = not line
            self.remaining = json.loads(line)["steps"] if line else 1
            self.wall, self.cpu = time.perf_counter(), time.process_time()

    class Trainer(RewardModelTrainer):
        """Keeps the last loss; Trainer adds them up."""

        summed = last_loss = 0.0

        def _check_loss_valid(self, loss: Any) -> None:
            super()._check_loss_valid(loss)
            before, self.summed = self.summed, float(loss)
            self.last_loss = self.summed - before

    use_cpu_layers()
    write_task(folder, compare)
    task = json.loads((folder / "task.json").read_text(encoding="utf-8"))
    losses: list[float] = []
    config = load_config(RewardModelConfig, ARGUMENTS, _overrides(folder, task))
    args = training_arguments(config)
    quiet_paddlenlp(args.output_dir, True)
    groups = [
        GoldGroup(CandidateGroup(group["prompt"], group["responses"]), tuple(group["gold"]), "en-de")
        for group in task["groups"]
    ]
    model = load_reward_model(folder / "model")
    head = {"reward_model": model.kind, **model.settings()}
    parts = {"head": head, "config": config, "groups": groups, "held_out": [], "metrics_log": None, "progress": None}
    trainer = Trainer(model=model, args=args, **parts)
    trainer.add_callback(Clock())
    freeze_gc()
    trainer.train()


def _overrides(folder: Path, task: dict[str, Any]) -> list[str]:
    settings = {
        "model_name_or_path": folder / "model",
        "output_dir": folder / "out",
        "train_datasets": folder / "task.json",
        "val_size": 0,
        "evaluation_strategy": "no",
        "save_strategy": "no",
        "logging_steps": 1_000_000,
        "max_steps": 1_000_000,
        "warmup_steps": 0,
        "lr_scheduler_type": "constant",
        "learning_rate": task["learning_rate"],
        "backbone_learning_rate": task["backbone_learning_rate"],
        "squared_weight": task["squared_weight"],
        "per_device_train_batch_size": task["batch"],
        "dataloader_shuffle": False,
        "report_to": "none",
    }
    return [part for key, value in settings.items() for part in (f"--{key}", str(value))]


if __name__ == "__main__":
    main()
