"""Time of the two halves of an RL step with the demo's model: generating a rollout, and training on it.

    python benchmarks/tiny_step.py [--repeats 5] [--out FILE]

The model has the demo's shape and random weights; prompts are random token ids and nothing ends early, so every repeat
does the same work. Medians are reported, with the fastest and the slowest repeat; the first, which warms up, is left
out. Generation is measured in C++ kernels and, turn by turn with them, in Paddle operators (`generate_plain`).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from grrm.startup import configure_process

if "paddle" not in sys.modules:
    configure_process()

import numpy as np
import paddle
from machine import ROOT, command_line, describe_machine, write_result

from grrm.config.derive_objective import policy_loss_config
from grrm.engine.api import Completion, SamplingParams
from grrm.engine.paddle.engine import PaddleEngine
from grrm.models.chunked_loss import chunked_loss
from grrm.models.cpu_layers import use_cpu_layers
from grrm.models.policy import policy_class
from grrm.rl.batch import BatchObjective, make_batch
from grrm.rl.experience import Row
from grrm.rl.losses.aggregation import count_denominators

MODEL_CONFIG = ROOT / "llm/config/qwen/tiny_model_config.json"


@dataclass(frozen=True, slots=True)
class Workload:
    """One rollout of `n_prompts` groups, and one optimizer step on all of its rows, `micro_batch_rows` at a time.

    `pack_tokens` as in `make_batch`: responses share their prompt's row up to that length.
    """

    n_prompts: int = 32
    rollout_n: int = 8
    prompt_tokens: int = 40
    new_tokens: int = 24
    micro_batch_rows: int = 64
    pack_tokens: int = 136


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, "tiny_step")
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each half, after one to warm up")
    options = parser.parse_args(arguments)
    if options.repeats < 1:
        parser.error("--repeats must be at least 1")
    result = measure(Workload(), options.repeats)
    write_result(options.out, result)
    for name in ("generate", "generate_plain", "train"):
        part = result[name]
        print(f"{name:<14} {part['median_s']:.3f} s, {part['tokens_per_s']:,} tokens/s (median of {options.repeats})")


def measure(workload: Workload, repeats: int) -> dict[str, Any]:
    """Time both halves; see the module's description."""
    machine = describe_machine()
    use_cpu_layers()
    model = build_model()
    prompts = random_prompts(workload, model.config.vocab_size)
    params = SamplingParams(max_new_tokens=workload.new_tokens, seed=1)
    engines = [PaddleEngine(model, max_num_seqs=len(prompts), use_kernels=kernels) for kernels in (True, False)]
    (completions, generating), (_, generating_plain) = timed_in_turn(
        [lambda engine=engine: engine.generate(prompts, params) for engine in engines], repeats
    )
    step = training_step(model, prompts, completions, workload)
    ((_, training),) = timed_in_turn([step], repeats)
    n_new = sum(len(completion.token_ids) for completion in completions)
    n_all = n_new + sum(map(len, prompts))
    return {
        "workload": {**asdict(workload), "parameters": sum(int(p.size) for p in model.parameters())},
        "generate": summary(generating, n_new, "generated"),
        "generate_plain": summary(generating_plain, n_new, "generated"),
        "train": summary(training, n_all, "prompt and generated of every row; forward, backward and AdamW"),
        "machine": machine,
    }


def build_model() -> Any:
    """The demo's architecture with seeded random weights."""
    settings = json.loads(MODEL_CONFIG.read_text(encoding="utf-8"))
    cls = policy_class(settings.pop("model_type"))
    paddle.seed(1)
    return cls(cls.config_class(**settings, dtype="float32"))


def random_prompts(workload: Workload, vocab_size: int) -> list[list[int]]:
    """`rollout_n` equal prompts after one another per group, as a rollout asks for them."""
    ids_PT = np.random.default_rng(1).integers(0, vocab_size, (workload.n_prompts, workload.prompt_tokens))
    return [ids_T.tolist() for ids_T in ids_PT for _ in range(workload.rollout_n)]


def training_step(
    model: Any, prompts: list[list[int]], completions: list[Completion], workload: Workload
) -> Callable[[], None]:
    """One optimizer step on all rows with advantages of +1 and -1, as a function to call repeatedly."""
    rows = [
        row_of(prompt, completion, 1.0 if index % 2 else -1.0)
        for index, (prompt, completion) in enumerate(zip(prompts, completions, strict=True))
    ]
    optimizer = paddle.optimizer.AdamW(1e-4, parameters=model.parameters())

    def step() -> None:
        for start in range(0, len(rows), workload.micro_batch_rows):
            loss_of(model, rows[start : start + workload.micro_batch_rows], workload.pack_tokens).backward()
        optimizer.step()
        optimizer.clear_grad()

    return step


def row_of(prompt: list[int], completion: Completion, advantage: float) -> Row:
    """A training row of one sample."""
    n_tokens = len(completion.token_ids)
    return Row(
        prompt_ids=prompt,
        token_ids=completion.token_ids,
        advantages_T=np.full(n_tokens, advantage),
        mask_T=np.ones(n_tokens),
        engine_logprobs_T=np.asarray(completion.logprobs),
        old_logprobs_T=None,
        ref_logprobs_T=None,
    )


def loss_of(model: Any, rows: list[Row], pack_tokens: int) -> Any:
    """The clipped policy loss of one micro-batch, as the trainer computes it on its own rollout."""
    batch = make_batch(rows, pad_id=0, pack_tokens=pack_tokens)
    denominators = count_denominators(batch.mask_RT.numpy(), batch.advantages_RT.numpy())
    objective = BatchObjective(batch, policy_loss_config(), denominators)
    return chunked_loss(model(**batch.tokens.model_inputs()).hidden_NH, model.lm_head, batch.tokens, objective)


def timed_in_turn(works: Sequence[Callable[[], Any]], repeats: int) -> list[tuple[Any, list[float]]]:
    """For each work what its last call returned, and the seconds of each call but the first, which warms up."""
    results: list[Any] = [None] * len(works)
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(repeats + 1):
        for index, work in enumerate(works):
            start = time.perf_counter()
            results[index] = work()
            seconds[index].append(time.perf_counter() - start)
    return [(result, times[1:]) for result, times in zip(results, seconds, strict=True)]


def summary(seconds: list[float], n_tokens: int, counted: str) -> dict[str, Any]:
    """Median, range and rate; `counted` says which tokens the rate counts."""
    return {
        "median_s": round(median(seconds), 6),
        "fastest_s": round(min(seconds), 6),
        "slowest_s": round(max(seconds), 6),
        "repeats": len(seconds),
        "tokens_per_s": round(n_tokens / median(seconds)),
        "tokens_counted": counted,
    }


if __name__ == "__main__":
    main()
