"""Log-probabilities and entropies of tokens under a large vocabulary, forward and backward, from hidden states.

    bash benchmarks/peers/set_up.sh                              # once: torch
    python benchmarks/logprob.py [--repeats 2] [--tokens 4096] [--forms chunked,twice] [--out FILE]

`chunked` runs a few sequences at a time forward and backward, as a training step does, and `chunked-bf16` does so with
bfloat16 products (left out on processors that have no dot products of it); `twice` computes logits of 256 tokens at a
time and once more in the backward pass.

In torch, and left out where that is not installed: `trl`, what TRL's trainer calls (parts of the vocabulary, computed
once more in the backward pass), and `torch`, all logits with TRL's selective_log_softmax and entropy behind them. Each
measurement is a process with two threads; the forms take turns.

What counts are the ratios of time and of the memory that a process takes above its weights and hidden states, gradients
included. Takes ten minutes.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from machine import RESULTS, command_line, describe_machine, resident_bytes, write_result
from processes import answer, answers_of, is_supported, peers_home

RESULT = RESULTS / "logprob.json"
OURS = ("chunked", "chunked-bf16", "twice")
PEERS = ("trl", "torch")
N_TOKENS, SEQUENCE = 4096, 64
SIZES = {"SmolLM2-135M": (49_152, 576), "Qwen2.5-0.5B": (151_936, 896)}  # vocabulary and width of the output layer
_STEPS = 2


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, "logprob")
    parser.add_argument("--repeats", type=int, default=2, help="processes of each form (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=N_TOKENS, help="tokens to score (default: %(default)s)")
    parser.add_argument("--forms", default=",".join(OURS), help="forms of ours to measure (default: %(default)s)")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        form, *sizes = options.one
        answer(measure_in_process(form, *map(int, sizes)))
        return
    forms = list(filter(is_supported, options.forms.split(",")))
    if options.repeats < 1 or options.tokens < 1 or not forms or not {*forms} <= {*OURS}:
        parser.error(f"--repeats and --tokens must be at least 1, --forms some of {','.join(OURS)}")
    peer = peers_home() / "venv/bin/python"
    if not peer.exists() and options.out == RESULT:
        print("Token scores are not compared: run `bash benchmarks/peers/set_up.sh` first, or give a file as --out.")
        return
    result = measure(options.repeats, options.tokens, forms, str(peer) if peer.exists() else None)
    write_result(options.out, result)
    for row in result["rows"]:
        print(f"{row['model']:<14}{row['engine']:<15}{row['seconds']:8.1f} s {row['peak_mb']:8.0f} MB")


def measure(repeats: int, n_tokens: int, ours: Sequence[str], peer: str | None) -> dict[str, Any]:
    """Median seconds and peak memory of every form, and both relative to those of others."""
    forms = (*ours, *PEERS) if peer else tuple(ours)
    rows = []
    for model, (vocab, width) in SIZES.items():
        runs_of: dict[str, list[dict[str, float]]] = {form: [] for form in forms}
        for _ in range(repeats):
            for form in forms:
                runs_of[form].append(measure_once(form, peer or "", n_tokens, vocab, width))
        middle = {
            form: {key: median(run[key] for run in runs) for key in ("seconds", "peak_mb")}
            for form, runs in runs_of.items()
        }
        for form, values in middle.items():
            relative = {
                f"{key}_relative_to_{other}": values[key] / middle[other][key]
                for other in PEERS
                if other in middle
                for key in values
            }
            engine = form if form in PEERS else f"ours-{form}"
            rows.append({"engine": engine, "model": model, "tokens": n_tokens, **values, **relative})
    return {"machine": describe_machine(), "repeats": repeats, "rows": rows}


def measure_once(form: str, peer: str, *sizes: int) -> dict[str, float]:
    """Seconds and megabytes of one process."""
    python = peer if form in PEERS else sys.executable
    (figures,) = answers_of([python, __file__, "--one", form, *sizes], os.environ.get("OMP_NUM_THREADS", 2))
    return dict(figures)


def measure_in_process(form: str, n_tokens: int, vocab: int, width: int) -> dict[str, float]:
    """The same in this process: the faster of two steps, and how far memory grew."""
    step = (torch_step if form in PEERS else paddle_step)(form, n_tokens, vocab, width)
    ctypes.CDLL(None).malloc_trim(0)  # nothing that setting up has freed is to be used again unseen,
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # and its height is to be forgotten
    before, seconds = resident_bytes("VmHWM"), []
    for _ in range(_STEPS):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    grown = 1e-6 * (resident_bytes("VmHWM") - before)
    gradients = 4e-6 * width * (vocab + n_tokens)
    if grown < gradients:
        raise RuntimeError(f"memory grew by {grown:.0f} MB, less than the gradients' {gradients:.0f} MB")
    return {"seconds": min(seconds), "peak_mb": grown}


def paddle_step(form: str, n_tokens: int, vocab: int, width: int) -> Callable[[], None]:
    """A step of one of our forms."""
    from grrm import startup

    startup.configure_process()
    from types import SimpleNamespace

    import numpy as np
    import paddle

    from grrm.models.chunked_loss import ChunkedLoss
    from grrm.models.cpu_layers.precision import set_precision
    from grrm.models.output_layer import HeadLayout
    from grrm.models.token_scores import linear_scores

    if form.endswith("bf16"):
        set_precision("bfloat16")
    rng = np.random.default_rng(0)
    weight = paddle.to_tensor(0.02 * rng.standard_normal((vocab, width), dtype="float32"))
    hidden = paddle.to_tensor(rng.standard_normal((n_tokens, width), dtype="float32"))
    weight.stop_gradient = hidden.stop_gradient = False
    labels = paddle.to_tensor(rng.integers(0, vocab, n_tokens))
    head = SimpleNamespace(weight=weight, transpose_y=True)
    lengths = [min(SEQUENCE, n_tokens - start) for start in range(0, n_tokens, SEQUENCE)]

    def step() -> None:
        weight.clear_gradient(set_to_zero=False)
        hidden.clear_gradient(set_to_zero=False)
        if form.startswith("chunked"):
            layout = (HeadLayout(transposed=True), tuple(lengths), False)
            ChunkedLoss.apply(hidden, weight, labels, *layout, lambda scores, _: scores[0].sum() / n_tokens).backward()
        else:
            linear_scores(hidden, head, labels)[0].mean().backward()

    return step


def torch_step(form: str, n_tokens: int, vocab: int, width: int) -> Callable[[], None]:
    """A step of TRL's, from parts of the vocabulary or from all logits; the entropy has no gradient."""
    import torch
    from trl.kernels import chunked_logprob
    from trl.trainer import utils

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(0)
    weight = torch.randn(vocab, width).mul_(0.02).requires_grad_()
    hidden = torch.randn(n_tokens, width).requires_grad_()
    labels = torch.randint(0, vocab, (n_tokens,))
    rows = (n_tokens // SEQUENCE, SEQUENCE) if n_tokens % SEQUENCE == 0 else (1, n_tokens)

    def by_parts() -> torch.Tensor:
        sizes = (1.0, utils._CHUNKED_LOGPROB_CHUNK_SIZE, None, 1.0, ("entropy",))
        return chunked_logprob.ChunkedLogProbFunction.apply(hidden, weight, None, labels, *sizes)[0]

    def of_logits() -> torch.Tensor:
        logits = torch.nn.functional.linear(hidden, weight).view(*rows, vocab)
        with torch.no_grad():
            utils.entropy_from_logits(logits)
        return utils.selective_log_softmax(logits, labels.view(rows))

    def step() -> None:
        weight.grad = hidden.grad = None
        (by_parts() if form == "trl" else of_logits()).mean().backward()

    return step


if __name__ == "__main__":
    main()
