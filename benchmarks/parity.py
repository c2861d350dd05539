"""Parity of engine and trainer with transformers: greedy tokens and log-probabilities, in float32.

    bash benchmarks/peers/set_up.sh                              # once: transformers and the models
    python benchmarks/parity.py [--out FILE]

Twenty prompts of 24 words, 64 tokens each, for SmolLM2-135M and a Qwen2 with random weights. The engine takes all
prompts at the same time, with weights laid out and without, and in Paddle's operators; the trainer scores what
transformers wrote. Where transformers is not installed nothing is compared, and a line says so.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grpo_step import prompts
from machine import ROOT, command_line, describe_machine, write_result
from processes import answers_of, peers_home

MODELS = ("smol", "tiny")
ENGINES: dict[str, dict[str, Any]] = {
    "kernels": {},
    "kernels, weights as they are": {"max_packed_bytes": 0},
    "operators": {"use_kernels": False},
}
N_PROMPTS, NEW_TOKENS = 20, 64


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, "parity")
    options = parser.parse_args(arguments)
    home = peers_home()
    if not all((home / model / "model.safetensors").exists() for model in MODELS):
        print("Nothing is compared: run `bash benchmarks/peers/set_up.sh` first.")
        return
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    from grrm import startup

    startup.configure_process()
    machine, rows = describe_machine(), []
    for model in MODELS:
        theirs = ask_transformers(home, model)
        rows += [engine_row(home, model, name, options, theirs) for name, options in ENGINES.items()]
        rows.append(trainer_row(home, model, theirs))
    write_result(options.out, {"machine": machine, "rows": rows})
    for row in rows:
        same = f"{row['same_tokens']} of {row['tokens']} tokens the same, " if "same_tokens" in row else ""
        print(f"{row['model']:<6}{row['of']:<38}{same}log-probabilities within {row['largest_gap']:.1e}")


def ask_transformers(home: Path, model: str) -> dict[str, list[list[Any]]]:
    """Prompts as token ids, greedy tokens and their log-probabilities."""
    with tempfile.TemporaryDirectory() as folder:
        task = Path(folder) / "task.json"
        texts = prompts(N_PROMPTS)
        task.write_text(json.dumps({"model": str(home / model), "prompts": texts, "new": NEW_TOKENS}), "utf-8")
        command = [home / "venv/bin/python", ROOT / "benchmarks/peers/parity_worker.py", task]
        (theirs,) = answers_of(command, os.environ["OMP_NUM_THREADS"])
    return dict(theirs)


def engine_row(
    home: Path, model: str, name: str, options: dict[str, Any], theirs: dict[str, list[list[Any]]]
) -> dict[str, Any]:
    """Greedy tokens of the engine against theirs; log-probabilities as far as the tokens before are the same."""
    from grrm.engine.api import SamplingParams
    from grrm.engine.paddle.engine import PaddleEngine

    engine = PaddleEngine.from_pretrained(home / model, **options)
    completions = engine.generate(theirs["prompts"], SamplingParams(max_new_tokens=NEW_TOKENS, temperature=0.0))
    same, gaps = 0, [0.0]
    for reply, tokens, logprobs in zip(completions, theirs["tokens"], theirs["logprobs"], strict=True):
        for ours, other, our_logprob, logprob in zip(reply.token_ids, tokens, reply.logprobs, logprobs, strict=True):
            if ours != other:
                break
            same += 1
            gaps.append(abs(our_logprob - logprob))
    total = sum(map(len, theirs["tokens"]))
    return {"model": model, "of": f"engine, {name}", "tokens": total, "same_tokens": same, "largest_gap": max(gaps)}


def trainer_row(home: Path, model: str, theirs: dict[str, list[list[Any]]]) -> dict[str, Any]:
    """Log-probabilities of the trainer's forward pass, prompts packed in front of their responses."""
    from grrm.models.cpu_layers import use_cpu_layers
    from grrm.models.policy import load_policy
    from grrm.models.token_scores import score_responses

    use_cpu_layers()
    policy = load_policy(home / model)
    sizes = {"pad_id": 0, "batch_size": N_PROMPTS, "temperature": 1.0, "pack_tokens": 2048}
    scores = score_responses(policy, theirs["prompts"], theirs["tokens"], **sizes)
    gap = max(float(abs(score - other).max()) for score, other in zip(scores, theirs["logprobs"], strict=True))
    return {"model": model, "of": "trainer", "tokens": sum(map(len, theirs["tokens"])), "largest_gap": gap}


if __name__ == "__main__":
    main()
