"""Milliseconds that judging a group of eight candidates takes: the ranker's forward pass, and a judge that writes.

    python benchmarks/judge_group.py [--rounds 2] [--batches 1,32] [--precisions float32,bfloat16] [--out FILE]

Both stand on a model of SmolLM2-135M's shape with random weights. Candidates have 30 random tokens each. The ranker, in
both its forms, reads them behind one translation prompt of 65, as many groups at once as its judge takes.

The GQM, the judge that writes, reads a prompt of 425 tokens, which is about what the same translations come to with its
instructions, and writes 256; nothing ends earlier. Tokenisation is left out on both sides.

They take turns on the same number of groups in one process with one thread, or as many as OMP_NUM_THREADS says; medians
are reported, and the median of the rounds' ratios. CPU seconds are told too: where others want the cores as well, their
ratio is the one to trust.

What rounds factors of products to bfloat16 is left out on a processor that has no dot products of it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from machine import command_line, describe_machine, write_result
from processes import answer, answers_of, is_supported

PRECISIONS = {"float32": "fp32", "bfloat16": "bf16"}
GQM = "gqm"
JUDGES = ("ranker-none", "ranker-group", GQM)
GROUP_SIZE, CANDIDATE, RANKER_PROMPT, GQM_PROMPT, NEW_TOKENS = 8, 30, 65, 425, 256
SMOLLM2_135M = {
    "vocab_size": 49_152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100_000.0,
    "tie_word_embeddings": True,
}
Judge = Callable[[int], Any]  # of so many groups


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, "judge_group")
    parser.add_argument("--rounds", type=int, default=2, help="turns of every judge (default: %(default)s)")
    parser.add_argument("--batches", default="1,32", help="groups at once (default: %(default)s)")
    parser.add_argument("--precisions", default=",".join(PRECISIONS), help="of products (default: %(default)s)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    batches, precisions = [int(batch) for batch in options.batches.split(",")], options.precisions.split(",")
    if min(options.rounds, *batches) < 1 or not {*precisions} <= {*PRECISIONS}:
        parser.error(f"--rounds and --batches must be at least 1, --precisions some of {','.join(PRECISIONS)}")
    if options.one:
        answer(measure(build_judges(options.one), options.one, batches, options.rounds))
        return
    machine = describe_machine()
    rows = [
        row
        for precision in precisions
        if is_supported(PRECISIONS[precision])
        for row in measure_apart(precision, options.batches, options.rounds)
    ]
    write_result(options.out, {"machine": machine, "rows": rows})
    for row in rows:
        cost = f" {row['milliseconds_per_group']:9.1f} ms a group, 1/{1 / row['relative_to_gqm']:.1f} of the GQM's"
        print(f"{row['engine']:<18}{row['batch']:4} at once{cost} (1/{1 / row['cpu_relative_to_gqm']:.1f} in CPU time)")


def measure_apart(precision: str, batches: str, rounds: int) -> list[dict[str, Any]]:
    """`measure` in a process of its own: the precision is one for all models of a process."""
    command = [sys.executable, __file__, "--one", precision, "--batches", batches, "--rounds", rounds]
    (rows,) = answers_of(command, os.environ.get("OMP_NUM_THREADS", 1))
    return list(rows)


def measure(judges: dict[str, Judge], precision: str, batches: Sequence[int], rounds: int) -> list[dict[str, Any]]:
    """Milliseconds a group of every judge for every number of groups at once; the first turn, of one, warms up."""
    rows = []
    for judge in judges.values():
        judge(1)
    for batch in batches:
        turns = [{name: clocked(judge, batch) for name, judge in judges.items()} for _ in range(rounds)]
        for name in judges:
            milliseconds, cpu = (
                median(1e3 * turn[name][clock] / batch for turn in turns) for clock in ("seconds", "cpu_seconds")
            )
            ratio, cpu_ratio = (
                median(turn[name][clock] / turn[GQM][clock] for turn in turns) for clock in ("seconds", "cpu_seconds")
            )
            rows.append(
                {
                    "engine": f"{name}-{PRECISIONS[precision]}",
                    "batch": batch,
                    "group_size": GROUP_SIZE,
                    "threads": int(os.environ["OMP_NUM_THREADS"]),
                    "milliseconds_per_group": milliseconds,
                    "cpu_milliseconds_per_group": cpu,
                    "relative_to_gqm": ratio,
                    "cpu_relative_to_gqm": cpu_ratio,
                    "rounds": rounds,
                }
            )
    return rows


def clocked(judge: Judge, n_groups: int) -> dict[str, float]:
    """Return the time of judging `n_groups` groups."""
    wall, cpu = time.perf_counter(), time.process_time()
    judge(n_groups)
    return {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}


def build_judges(
    precision: str, sizes: dict[str, Any] = SMOLLM2_135M, new_tokens: int = NEW_TOKENS
) -> dict[str, Judge]:
    """The judges over one model; their groups are drawn anew each time."""
    from grrm.startup import configure_process, freeze_gc

    if "paddle" not in sys.modules:
        configure_process()
    import numpy as np
    import paddle

    from grrm.engine.api import SamplingParams
    from grrm.engine.paddle.engine import PaddleEngine
    from grrm.judges.value_head import RewardModelOptions
    from grrm.models.cpu_layers import use_cpu_layers
    from grrm.models.policy import policy_class
    from grrm.models.ranker import Ranker
    from grrm.models.reward_models import score_groups
    from grrm.models.value_head import CandidateGroup

    use_cpu_layers(precision)
    paddle.seed(1)
    cls, rng = policy_class("llama"), np.random.default_rng(1)
    model = cls(cls.config_class(**sizes, dtype="float32"))
    model.eval()
    engine = PaddleEngine(model, precision=precision)
    rankers = {f"ranker-{compare}": Ranker(model, compare=compare) for compare in ("none", "group")}
    freeze_gc()

    def draw(*shape: int) -> Any:
        return rng.integers(5, sizes["vocab_size"], shape).tolist()

    def rank(ranker: Ranker, n_groups: int) -> list[list[float]]:
        groups = [CandidateGroup(draw(RANKER_PROMPT), draw(GROUP_SIZE, CANDIDATE)) for _ in range(n_groups)]
        return score_groups(ranker, groups, max_tokens=RewardModelOptions().batch_tokens)

    def write(n_groups: int) -> list[list[int]]:
        params = SamplingParams(max_new_tokens=new_tokens, temperature=0.0, logprobs=False)
        tokens = [completion.token_ids for completion in engine.generate(draw(n_groups, GQM_PROMPT), params)]
        assert {*map(len, tokens)} == {new_tokens}
        return tokens

    judges: dict[str, Judge] = {
        name: lambda n_groups, ranker=ranker: rank(ranker, n_groups) for name, ranker in rankers.items()
    }
    return {**judges, GQM: write}


if __name__ == "__main__":
    main()
