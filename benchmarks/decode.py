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
import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from machine import ROOT, command_line, describe_machine, write_result
from processes import Worker, WorkerEnded, answer, is_supported, peers_home

PEERS = ("transformers-fp32", "transformers-bf16", "llama.cpp-bf16", "openvino-fp32", "openvino-bf16")
OURS = {"ours-fp32": "float32", "ours-bf16": "bfloat16", "ours-int8": "int8"}
CASES = tuple({"batch": batch, "prompt": 64, "new": 64} for batch in (1, 8, 32))
ROLLOUT = {"batch": 8, "samples": 4, "prompt": 512, "new": 64}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, "decode")
    parser.add_argument("--rounds", type=int, default=3, help="turns of every engine (default: %(default)s)")
    parser.add_argument("--engines", default=",".join(PEERS), help="others to compare with (default: %(default)s)")
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
    machine = describe_machine()
    rows = measure(home, engines, options.rounds)
    write_result(options.out, {"machine": machine, "rows": rows})
    for row in rows:
        print(f"{row['engine']:<20}{row['batch']:4} x {row['prompt']:<5}{row['tokens_per_s']:9.1f} tokens/s")


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


def work(model: str, precision: str) -> None:
    """This project's engine, as a worker of its own comparison."""
    from grrm.startup import configure_process

    configure_process()
    import numpy as np

    from grrm.engine.api import SamplingParams
    from grrm.engine.paddle.engine import PaddleEngine

    engine, rng = PaddleEngine.from_pretrained(model, precision=precision), np.random.default_rng(0)
    answer("ready")
    for line in sys.stdin:
        task = json.loads(line)
        prompts = rng.integers(5, 49_000, (task["batch"], task["prompt"])).repeat(task.get("samples", 1), axis=0)
        if task.get("apart"):
            prompts[:, 0] = np.arange(5, 5 + len(prompts))
        begin = time.perf_counter()
        completions = engine.generate(prompts.tolist(), SamplingParams(max_new_tokens=task["new"]))
        seconds = time.perf_counter() - begin
        assert all(len(completion.token_ids) == task["new"] for completion in completions)
        answer({"seconds": seconds})


if __name__ == "__main__":
    main()
