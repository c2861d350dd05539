"""Tokens per second of the project's engine and of others, for batches of one, eight and 32.

    bash benchmarks/peers/set_up.sh                              # once: the other engines and the model
    python benchmarks/decode.py [--rounds 3] [--engines transformers-fp32,...] [--out FILE]

SmolLM2-135M, prompts of 64 random tokens, 64 new ones at temperature 1, nothing ends early, prefill included. Every
engine is a process with two threads; in each round all take their turn, so what disturbs one disturbs all. Medians are
reported; what counts are the ratios.

`ours-…-shared` and `ours-…-apart` are a rollout of eight prompts of 512 tokens with four samples each, whose prompts
are prefilled once or, made to differ in their first token, four times; OpenVINO is asked for four samples of each
prompt. `ours-int8` has weights in eight bits and does the rest in 16.

An engine that does not run here is left out, and so is everything in bfloat16 or eight bits on a processor that has no
dot products of it; where the others are not installed nothing is measured. A line says so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks/results/decode.json"
PEERS = ("transformers-fp32", "transformers-bf16", "llama.cpp-bf16", "openvino-fp32", "openvino-bf16")
OURS = {"ours-fp32": "float32", "ours-bf16": "bfloat16", "ours-int8": "int8"}
ROUNDED = {"bf16": "bfloat16", "int8": "int8"}  # by what an engine's name holds
CASES = tuple({"batch": batch, "prompt": 64, "new": 64} for batch in (1, 8, 32))
ROLLOUT = {"batch": 8, "samples": 4, "prompt": 512, "new": 64}
_THREADS = "2"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="turns of every engine (default: %(default)s)")
    parser.add_argument("--engines", default=",".join(PEERS), help="others to compare with (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULT, help="JSON file to write (default: %(default)s)")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        work(*options.worker)
        return
    engines = options.engines.split(",")
    if options.rounds < 1 or not {*engines} <= {*PEERS}:
        parser.error(f"--rounds must be at least 1, --engines some of {','.join(PEERS)}")
    home = peers_home()
    if not (home / "smol/model.safetensors").exists():
        print("Engines are not compared: run `bash benchmarks/peers/set_up.sh` first.")
        return
    from machine import describe_machine, write_result

    machine = describe_machine()
    rows = measure(home, engines, options.rounds)
    write_result(options.out, {"machine": machine, "rows": rows})
    for row in rows:
        print(f"{row['engine']:<20}{row['batch']:4} x {row['prompt']:<5}{row['tokens_per_s']:9.1f} tokens/s")
    print(f"written to {options.out}")


def peers_home() -> Path:
    """Return the folder of the other engines and the model, from benchmarks/peers/set_up.sh."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("PEERS_HOME") or cache / "paddle-grrm/peers")


def measure(home: Path, engines: Sequence[str], rounds: int) -> list[dict[str, Any]]:
    """Median tokens per second of every engine in every case."""
    model, python = home / "smol", home / "venv/bin/python"
    theirs = ROOT / "benchmarks/peers/decode_worker.py"
    ours = [name for name in OURS if is_supported(name)]
    workers = {name: Worker([sys.executable, __file__, "--worker", model, OURS[name]]) for name in ours}
    for name in filter(is_supported, engines):
        try:
            workers[name] = Worker([python, theirs, name, model])
            workers[name].seconds({**CASES[0], "new": 4})
        except WorkerEnded as error:
            workers.pop(name, None)
            print(f"{name} is left out: {error}")
    seconds: dict[tuple[str, int], list[float]] = defaultdict(list)
    shared: dict[tuple[str, bool], list[float]] = defaultdict(list)
    for turn in range(-1, rounds):  # the first warms up
        for number, case in enumerate(CASES):
            for name, worker in workers.items():
                took = worker.seconds(case if turn >= 0 else {**case, "new": 4})
                if turn >= 0:
                    seconds[name, number].append(took)
        sharing = [name for name in workers if name.startswith("openvino")]
        for name, apart in [*product(ours, (False, True)), *product(sharing, (False,))]:
            took = workers[name].seconds({**ROLLOUT, "apart": apart, "new": ROLLOUT["new"] if turn >= 0 else 2})
            if turn >= 0:
                shared[name, apart].append(took)
    for worker in workers.values():
        worker.close()
    rows = [_row(name, CASES[number], times) for (name, number), times in sorted(seconds.items())]
    return rows + [
        _row(f"{name}-{'apart' if apart else 'shared'}", ROLLOUT, times) for (name, apart), times in shared.items()
    ]


def is_supported(engine: str) -> bool:
    """Return whether this processor computes what the engine's name says; emulated precisions are not compared."""
    from grrm_csrc.blas import is_native

    return all(is_native(precision) for mark, precision in ROUNDED.items() if mark in engine)


def _row(engine: str, case: dict[str, int], seconds: list[float]) -> dict[str, Any]:
    n_tokens = case["batch"] * case.get("samples", 1) * case["new"]
    speeds = [n_tokens / second for second in seconds]
    return {
        "engine": engine,
        "model": "smol",
        **case,
        "tokens_per_s": median(speeds),
        "slowest": min(speeds),
        "fastest": max(speeds),
    }


class WorkerEnded(Exception):
    """A worker's process is gone."""


class Worker:
    """An engine in a process that answers lines of JSON, one at a time."""

    def __init__(self, command: Sequence[object], threads: str = _THREADS) -> None:
        self._command = list(map(str, command))
        environment = dict(os.environ, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads, HF_HUB_OFFLINE="1")
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._answer()

    def seconds(self, task: dict[str, Any]) -> float:
        """Return the engine's time. Raises WorkerEnded if its process is gone."""
        return float(self.ask(task)["seconds"])

    def ask(self, task: dict[str, Any]) -> dict[str, Any]:
        """All that it answers. Raises WorkerEnded where its process is gone."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the missing answer says it all
            self._process.stdin.write(json.dumps(task) + "\n")
            self._process.stdin.flush()
        return dict(json.loads(self._answer()))

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("@@"):
                return line[2:]
        raise WorkerEnded(f"status {self._process.wait()} of {' '.join(self._command)}")


def work(model: str, precision: str) -> None:
    """This project's engine, as a worker of its own comparison."""
    from grrm.startup import configure_process

    configure_process()
    import numpy as np

    from grrm.engine.api import SamplingParams
    from grrm.engine.paddle.engine import PaddleEngine

    engine, rng = PaddleEngine.from_pretrained(model, precision=precision), np.random.default_rng(0)
    print("@@ready", flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        prompts = rng.integers(5, 49_000, (task["batch"], task["prompt"])).repeat(task.get("samples", 1), axis=0)
        if task.get("apart"):
            prompts[:, 0] = np.arange(5, 5 + len(prompts))
        begin = time.perf_counter()
        completions = engine.generate(prompts.tolist(), SamplingParams(max_new_tokens=task["new"]))
        seconds = time.perf_counter() - begin
        assert all(len(completion.token_ids) == task["new"] for completion in completions)
        print("@@" + json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
