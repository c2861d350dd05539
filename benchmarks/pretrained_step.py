"""Training steps of a model of 135M parameters (SmolLM2's shape, tied head) in bfloat16 on a CPU: tokens a CPU-second.

    python benchmarks/pretrained_step.py [--model FOLDER] [--repeats 3] [--out FILE]

`sft` is an optimizer step of a cold start, `rl` one update on the samples of a rollout, both by the trainers' own
packing, loss, clipping and optimizer. Rates are tokens of prompts and responses, padding left out, by the CPU time of
this process, which has one thread. The weights are random without a --model.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from judge_group import SMOLLM2_135M
from machine import command_line, describe_machine, write_result

SHAPE = SMOLLM2_135M | {"max_position_embeddings": 8192}
# Prompts of a step, samples of each, and mean lengths in tokens: rows of the Home Assistant corpus.
WORKLOADS = {"sft": (32, 1, 48, 14), "sft64": (64, 1, 48, 14), "rl": (16, 8, 48, 14)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, "pretrained_step")
    parser.add_argument("--model", type=Path, help="folder of a checkpoint (default: random weights)")
    parser.add_argument("--precision", default="bfloat16", choices=["float32", "bfloat16"])
    parser.add_argument("--row-tokens", type=int, default=512, help="longest packed row (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="measured steps (default: %(default)s)")
    options = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"
    result: dict[str, Any] = {"machine": describe_machine(), "precision": options.precision}
    result["row_tokens"] = options.row_tokens
    model, optimizer = prepare(options.model, options.precision)
    for name in WORKLOADS:
        result[name] = measure(name, model, optimizer, options)
        print(name, json.dumps(result[name]))
    write_result(options.out, result)


def prepare(folder: Path | None, precision: str) -> tuple[Any, Any]:
    """The policy and its optimizer, as the trainers set them up."""
    from grrm.startup import configure_process

    configure_process()
    import paddle

    from grrm.models.cpu_layers import use_cpu_layers
    from grrm.models.policy import load_policy, policy_class

    use_cpu_layers(precision)
    if folder is not None:
        model = load_policy(folder)
    else:
        paddle.seed(1)
        cls = policy_class("llama")
        model = cls(cls.config_class(**SHAPE, dtype="float32"))
    clip = paddle.nn.ClipGradByGlobalNorm(1.0)
    return model, paddle.optimizer.AdamW(1e-5, parameters=model.parameters(), grad_clip=clip)


def rows_of(name: str, vocab: int) -> tuple[list[list[int]], list[list[int]]]:
    """Prompts and responses of one step; lengths are spread around the mean as those of short texts are."""
    import numpy as np

    n_prompts, n_samples, n_prompt, n_response = WORKLOADS[name]
    draw = np.random.default_rng(1)

    def texts(n: int, mean: int) -> list[list[int]]:
        lengths = np.maximum(2, draw.gamma(6.0, mean / 6.0, n)).astype(int)
        return [draw.integers(5, vocab, length).tolist() for length in lengths]

    prompts = [prompt for prompt in texts(n_prompts, n_prompt) for _ in range(n_samples)]
    return prompts, texts(len(prompts), n_response)


def measure(name: str, model: Any, optimizer: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Rates of one workload, and CPU seconds of the parts of its step."""
    prompts, responses = rows_of(name, model.config.vocab_size)
    seconds: dict[str, list[float]] = {}
    step = rl_step if name == "rl" else sft_step
    for number in range(options.repeats + 1):
        clock = Clock()
        n_laid_out = step(model, prompts, responses, options.row_tokens, clock)
        with clock.part("optimizer"):
            optimizer.step()
            optimizer.clear_grad()
        if number:
            for part, value in (clock.seconds | {"step": sum(clock.seconds.values())}).items():
                seconds.setdefault(part, []).append(value)
    n_tokens = sum(map(len, prompts)) + sum(map(len, responses))
    n_distinct = sum(len(tokens) for tokens in {tuple(tokens) for tokens in prompts}) + sum(map(len, responses))
    middle = {part: round(median(values), 3) for part, values in seconds.items()}
    return {
        "tokens": n_tokens,
        "distinct_tokens": n_distinct,
        "padding": round(1 - (n_distinct - len(responses)) / n_laid_out, 4),
        "tokens_a_cpu_second": round(n_tokens / middle["step"], 1),
        "distinct_tokens_a_cpu_second": round(n_distinct / middle["step"], 1),
        "cpu_seconds": middle,
    }


class Clock:
    """CPU seconds of named parts."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Add what the block takes."""
        start = time.process_time()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - start


def sft_step(model: Any, prompts: Any, responses: Any, row_tokens: int, clock: Clock) -> int:
    """Forward and backward pass of a cold start; returns the tokens laid out, padding included."""
    from grrm.models.packing import pack_rows
    from grrm.models.token_scores import score_hidden

    tokens = pack_rows(prompts, responses, 0, max_tokens=0, row_tokens=row_tokens)
    with clock.part("forward"):
        hidden_NH = model(**tokens.model_inputs()).hidden_NH
    with clock.part("head"):
        loss = -score_hidden(hidden_NH, model.lm_head, tokens.labels_N).logprobs_N.mean()
    with clock.part("backward"):
        loss.backward()
    return int(tokens.input_ids.size)


def rl_step(model: Any, prompts: Any, responses: Any, row_tokens: int, clock: Clock) -> int:
    """Forward and backward pass of a policy-gradient update."""
    from grrm.models.chunked_loss import chunked_loss
    from grrm.models.packing import lay_out

    tokens = lay_out(prompts, responses, 0, row_tokens)
    with clock.part("forward"):
        hidden_NH = model(**tokens.model_inputs()).hidden_NH

    def objective(scores: Any, responses: slice | None = None) -> Any:
        return -scores.logprobs_N.sum() / len(tokens.lengths_R)

    with clock.part("head"):
        loss = chunked_loss(hidden_NH, model.lm_head, tokens, objective, temperature=1.0, entropy_gradient=False)
    with clock.part("backward"):
        loss.backward()
    return int(tokens.input_ids.size)


if __name__ == "__main__":
    main()
