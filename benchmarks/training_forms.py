"""A supervised step of the demo's model in its three forms on a CPU, one process after the other in turn.

    python benchmarks/training_forms.py [--repeats 3] [--out FILE]

`stock` is PaddleNLP's model as it is, with numbers below 1e-38 kept; `plain` has this project's layers in Paddle
operators; `kernels` has them in C++. Each measurement is a process with one thread that repeats forward, backward and
AdamW on the same rows and reports the median CPU time of a step, the first two left out. What counts are the ratios.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from statistics import median
from typing import Any

from machine import command_line, describe_machine, write_result
from processes import answer, answers_of

FORMS = ("stock", "plain", "kernels")
# Rows of a cold start of a policy, and of a judge: (rows, prompt tokens, response tokens)
WORKLOADS = {"policy": (48, 48, 12), "judge": (8, 170, 100)}
_STEPS = 5


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, "training_forms")
    parser.add_argument("--repeats", type=int, default=3, help="processes of each form (default: %(default)s)")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        answer(measure_in_process(*options.one))
        return
    if options.repeats < 1:
        parser.error("--repeats must be at least 1")
    result = measure(options.repeats)
    write_result(options.out, result)
    for name in WORKLOADS:
        forms = result[name]
        print(f"{name:<8}" + "  ".join(f"{form} {forms[form]['relative']:.2f}" for form in FORMS))


def measure(repeats: int) -> dict[str, Any]:
    """Seconds of a step in every form, and the same relative to stock."""
    result: dict[str, Any] = {"machine": describe_machine(), "repeats": repeats}
    for name in WORKLOADS:
        seconds: dict[str, list[float]] = {form: [] for form in FORMS}
        for _ in range(repeats):
            for form in FORMS:
                seconds[form].append(measure_once(name, form))
        stock = median(seconds["stock"])
        result[name] = {
            form: {"step_s": round(median(values), 4), "relative": round(median(values) / stock, 3)}
            for form, values in seconds.items()
        }
    return result


def measure_once(workload: str, form: str) -> float:
    """The seconds of a step in a process of its own."""
    kernels = "on" if form == "kernels" else "off"
    (seconds,) = answers_of([sys.executable, __file__, "--one", workload, form], 1, GRRM_KERNELS=kernels)
    return float(seconds)


def measure_in_process(workload: str, form: str) -> float:
    """The median CPU seconds of a step in this process."""
    from grrm import startup

    if form == "stock":
        startup.flush_denormals = lambda: False
    startup.configure_process()
    import time

    import numpy as np
    import paddle
    from tiny_step import build_model

    from grrm.models.cpu_layers import use_cpu_layers
    from grrm.models.packing import pack_rows, pad_rows
    from grrm.models.token_scores import score_hidden

    if form != "stock":
        use_cpu_layers()
    model = build_model()
    n_rows, n_prompt, n_response = WORKLOADS[workload]
    ids = np.random.default_rng(1).integers(0, model.config.vocab_size, (n_rows, n_prompt + n_response)).tolist()
    prompts, responses = [row[:n_prompt] for row in ids], [row[n_prompt:] for row in ids]
    tokens = pad_rows(prompts, responses, 0) if form == "stock" else pack_rows(prompts, responses, 0, 0)
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters())
    seconds = []
    for _ in range(_STEPS + 2):
        start = time.process_time()
        scores = score_hidden(model(**tokens.model_inputs()).hidden_NH, model.lm_head, tokens.labels_N)
        (-scores.logprobs_N.mean()).backward()
        optimizer.step()
        optimizer.clear_grad()
        seconds.append(time.process_time() - start)
    return median(seconds[2:])


if __name__ == "__main__":
    main()
