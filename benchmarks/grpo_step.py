"""Seconds of a whole GRPO step, rollout and update, of this project's trainer and of TRL's.

    bash benchmarks/peers/set_up.sh                              # once: TRL and the models
    python benchmarks/grpo_step.py [--rounds 2] [--steps 3] [--models tiny,smol] [--out FILE]

Eight prompts of 24 words, four samples each of 64 tokens, AdamW, no reference model, one update per rollout. `tiny` is
a Qwen2 of 4 layers, 256 wide, with random weights, `smol` SmolLM2-135M.

Both trainers are started as their users start them, with two threads (`ours-fp32`, `trl-fp32`) or, as `make demo` does,
as two processes of one thread (`ours-fp32-2ranks`), and ours with `bf16: true` too where the processor has bfloat16 dot
products. All take turns, and the first step of a run, which warms up, does not count.

Medians are reported; what counts are the ratios. Where TRL is not installed nothing is measured, and a line says so.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from machine import ROOT, command_line, describe_machine, write_result
from processes import answers_of, as_ranks, is_supported, peers_home

MODELS = ("tiny", "smol")
TRL = "trl-fp32"
OURS = {  # (ranks, bf16)
    "ours-fp32": (1, False),
    "ours-fp32-2ranks": (2, False),
    "ours-bf16": (1, True),
    "ours-bf16-2ranks": (2, True),
}
N_PROMPTS, WORDS_IN_PROMPT, SAMPLES, NEW_TOKENS = 8, 24, 4, 64
WORDS = ROOT / "benchmarks/peers/words.txt"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, "grpo_step")
    parser.add_argument("--rounds", type=int, default=2, help="runs of every trainer (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=3, help="measured steps of a run (default: %(default)s)")
    parser.add_argument("--models", default=",".join(MODELS), help="models to train (default: %(default)s)")
    options = parser.parse_args(arguments)
    models = options.models.split(",")
    if options.rounds < 1 or options.steps < 1 or not {*models} <= {*MODELS}:
        parser.error(f"--rounds and --steps must be at least 1, --models some of {','.join(MODELS)}")
    home = peers_home()
    if not all((home / model / "model.safetensors").exists() for model in models):
        print("Trainers are not compared: run `bash benchmarks/peers/set_up.sh` first.")
        return
    result = {"machine": describe_machine(), "rows": measure(home, models, options.rounds, options.steps)}
    write_result(options.out, result)
    for row in result["rows"]:
        name = f"{row['model']:<6}{row['engine']:<18}"
        print(f"{name}{row['seconds_per_step']:8.2f} s a step, {row['relative_to_trl']:.2f} of TRL's")


def measure(home: Path, models: Sequence[str], rounds: int, steps: int) -> list[dict[str, Any]]:
    """Median seconds of a step of every trainer with every model."""
    rows = []
    for model in models:
        seconds: dict[str, list[float]] = defaultdict(list)
        phases: dict[str, list[dict[str, float]]] = defaultdict(list)
        for _ in range(rounds):
            for engine in (*filter(is_supported, OURS), TRL):
                with tempfile.TemporaryDirectory() as folder:
                    run = run_trl if engine == TRL else partial(run_ours, *OURS[engine])
                    records = run(Path(folder), home, model, steps + 1)[1:]
                seconds[engine] += [record["seconds"] for record in records]
                phases[engine] += records
        for engine, times in seconds.items():
            rows.append(
                {
                    "engine": engine,
                    "model": model,
                    "seconds_per_step": median(times),
                    "slowest": max(times),
                    "fastest": min(times),
                    "steps": len(times),
                    "phases": {name: median(record[name] for record in phases[engine]) for name in phases[engine][0]},
                    "relative_to_trl": median(times) / median(seconds[TRL]),
                }
            )
    return rows


def prompts(n_prompts: int = N_PROMPTS) -> list[str]:
    """The prompts, the same for everyone."""
    words, rng = WORDS.read_text(encoding="utf-8").split(), random.Random(0)
    return [" ".join(rng.choices(words, k=WORDS_IN_PROMPT)) for _ in range(n_prompts)]


def run_ours(n_ranks: int, bf16: bool, folder: Path, home: Path, model: str, steps: int) -> list[dict[str, float]]:
    """Seconds of each step of `run_rl.py`, and of its parts."""
    facts = {"src_lang": "en", "trg_lang": "de", "reference": "a house near the river"}
    rows = ({"src": text, "tgt": json.dumps({"source": text, **facts})} for text in prompts())
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    n_rows = N_PROMPTS * SAMPLES
    settings = {
        "rl_algorithm": "grpo",
        "actor_model_name_or_path": str(home / model),
        "output_dir": str(folder / "out"),
        "train_datasets": str(folder / "rows.jsonl"),
        "max_prompt_len": 2 * WORDS_IN_PROMPT,
        "max_dec_len": NEW_TOKENS,
        "min_dec_len": NEW_TOKENS,
        "rollout_n": SAMPLES,
        "rollout_max_num_seqs": n_rows,
        "global_batch_size": N_PROMPTS,
        "per_device_train_batch_size": n_rows // n_ranks,
        "per_device_logprob_batch_size": n_rows // n_ranks,
        "kl_loss_coeff": 0.0,
        "extractor_type": "none",
        "max_steps": steps,
        "learning_rate": 1e-6,
        "device": "cpu",
        "bf16": bf16,
        "save_strategy": "no",
        "logging_steps": 1,
        "report_to": "none",
        "dump_rollouts": False,
        "console_groups": 0,
        "disable_tqdm": True,
    }
    (folder / "argument.json").write_text(json.dumps(settings), encoding="utf-8")
    script = [ROOT / "llm/alignment/grrm/run_rl.py", folder / "argument.json"]
    answers_of([*as_ranks(n_ranks, folder / "logs"), *script], threads=2 // n_ranks)
    records = map(json.loads, (folder / "out/metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [
        {
            "seconds": record["interval_runtime"],
            **{name: value for name, value in record.items() if name.startswith("seconds_")},
        }
        for record in records
        if "interval_runtime" in record
    ]


def run_trl(folder: Path, home: Path, model: str, steps: int) -> list[dict[str, float]]:
    """Seconds of each step of TRL's trainer."""
    task = {"model": str(home / model), "prompts": prompts(), "samples": SAMPLES, "new": NEW_TOKENS}
    (folder / "task.json").write_text(json.dumps({**task, "steps": steps, "folder": str(folder)}), encoding="utf-8")
    worker = ROOT / "benchmarks/peers/grpo_worker.py"
    return answers_of([home / "venv/bin/python", worker, folder / "task.json"], threads=2)


if __name__ == "__main__":
    main()
