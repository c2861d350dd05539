"""Growth of generation's speed and cache with batch, prompt, response, group and model, beside a roofline.

    bash benchmarks/peers/set_up.sh                              # once: the models
    python benchmarks/growth.py [--repeats 3] [--out FILE] [--figure FILE]

One process with two threads generates with SmolLM2-135M and random tokens, temperature 1, nothing ends early; one size
grows at a time while the others stay at a batch of 8, 64 + 32 tokens. The bound (roofline) is what two measured numbers
allow: float32 products of large square matrices, and bytes read from memory.

A prompt's tokens cost their products; a step of decoding costs its products, or the reading of all weights and of the
keys and values so far, those of a shared prompt once, whichever takes longer. The cache's size is computed, not
measured. Medians; points take turns. Without the models nothing is measured, and a line says so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from machine import ROOT, command_line, describe_machine, write_result
from processes import peers_home

FIGURE = ROOT / "docs/images/growth.png"


@dataclass(frozen=True, slots=True)
class Point:
    """Sizes of a generation: `batch` prompts of `prompt` tokens, `samples` of each of `new` tokens."""

    model: str = "smol"
    batch: int = 8
    prompt: int = 64
    new: int = 32
    samples: int = 1

    @property
    def sequences(self) -> int:
        return self.batch * self.samples


AXES: dict[str, tuple[Point, ...]] = {
    "batch": tuple(Point(batch=batch) for batch in (1, 2, 4, 8, 16, 32, 64)),
    "prompt": tuple(Point(prompt=prompt) for prompt in (16, 64, 256, 1024)),
    "new": tuple(Point(new=new) for new in (16, 64, 256)),
    "samples": tuple(Point(batch=2, prompt=256, samples=samples) for samples in (1, 2, 4, 8, 16)),
    "model": (Point(model="tiny"), Point()),
}
TITLES = {
    "batch": "prompts at a time",
    "prompt": "tokens of a prompt",
    "new": "tokens of a response",
    "samples": "samples of each of 2 prompts of 256 tokens",
    "model": "million weights",
}


@dataclass(frozen=True, slots=True)
class Machine:
    """Float32 operations and bytes per second, with two threads."""

    flops: float
    bytes: float


@dataclass(frozen=True, slots=True)
class Model:
    """Weights of the layers and of the output layer, and numbers that the cache holds for a token."""

    body: int
    head: int
    cached: int


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, "growth")
    parser.add_argument("--repeats", type=int, default=3, help="turns of every point (default: %(default)s)")
    parser.add_argument("--figure", type=Path, default=FIGURE, help="picture to draw (default: %(default)s)")
    options = parser.parse_args(arguments)
    if options.repeats < 1:
        parser.error("--repeats must be at least 1")
    home = peers_home()
    if not all((home / model / "model.safetensors").exists() for model in ("smol", "tiny")):
        print("Growth is not measured: run `bash benchmarks/peers/set_up.sh` first.")
        return
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    from grrm import startup

    startup.configure_process()
    from grrm.data.atomic import atomic_path

    described = describe_machine()
    machine = measure_machine()
    result = {"machine": described, **asdict(machine), "rows": measure(home, machine, options.repeats)}
    write_result(options.out, result)
    with atomic_path(options.figure) as temporary:
        draw(result, temporary)
    for row in result["rows"]:
        share = row["tokens_per_s"] / row["bound_tokens_per_s"]
        print(f"{row['axis']:<9}{row['value']:8g}{row['tokens_per_s']:9.1f} tokens/s, {share:.2f} of the bound")
    print(f"drawn to {options.figure}")


def measure_machine() -> Machine:
    """The best of a few products of square matrices, and of searches of memory beyond every cache for a maximum."""
    from multiprocessing.pool import ThreadPool

    import numpy as np
    import paddle

    side, repeats = 2048, 5
    square = paddle.ones([side, side], dtype="float32")
    parts = np.ones((int(os.environ["OMP_NUM_THREADS"]), 1 << 27), np.float32)  # 512 MB each
    products = min(_seconds(lambda: paddle.matmul(square, square)) for _ in range(repeats))
    with ThreadPool(len(parts)) as threads:
        reading = min(_seconds(lambda: threads.map(np.max, parts, 1)) for _ in range(repeats))
    return Machine(flops=2 * side**3 / products, bytes=parts.nbytes / reading)


def measure(home: Path, machine: Machine, repeats: int) -> list[dict[str, Any]]:
    """Median tokens per second of every point, and what the machine allows there."""
    from grrm.engine.paddle.engine import PaddleEngine

    opened = {name: PaddleEngine.from_pretrained(home / name, max_num_seqs=64) for name in ("smol", "tiny")}
    models = {name: sizes_of(engine.model.config) for name, engine in opened.items()}
    points = list(dict.fromkeys(point for of_axis in AXES.values() for point in of_axis))
    times: dict[Point, list[float]] = {point: [] for point in points}
    for turn in range(repeats + 1):
        for point in points:
            seconds = _seconds(lambda point=point: generate(opened[point.model], point))
            if turn:  # the first turn warms up
                times[point].append(seconds)
    rows = []
    for axis, of_axis in AXES.items():
        for point in of_axis:
            model, tokens = models[point.model], point.sequences * point.new
            rows.append(
                {
                    "axis": axis,
                    "value": (model.body + model.head) / 1e6 if axis == "model" else getattr(point, axis),
                    **asdict(point),
                    "tokens_per_s": tokens / median(times[point]),
                    "bound_tokens_per_s": tokens / bound_seconds(point, model, machine),
                    "cache_mb": 4e-6 * model.cached * point.sequences * (point.prompt + point.new),
                }
            )
    return rows


def sizes_of(config: Any) -> Model:
    """Return the sizes in the configuration of a Qwen2 or Llama model."""
    head_width = config.hidden_size // config.num_attention_heads
    keys = config.num_key_value_heads * head_width
    attention = 2 * config.hidden_size * (config.hidden_size + keys)
    mlp = 3 * config.hidden_size * config.intermediate_size
    layers = config.num_hidden_layers
    return Model(layers * (attention + mlp), config.vocab_size * config.hidden_size, 2 * layers * keys)


def bound_seconds(point: Point, model: Model, machine: Machine) -> float:
    """The least time that products and reading take: every prompt once, then a step for every token but the first.

    Attention's own products are left out; they are a few percent at these lengths.
    """
    prefill = 2 * (point.batch * point.prompt * model.body + point.batch * model.head) / machine.flops
    weights = model.body + model.head
    products = 2 * weights * point.sequences / machine.flops
    seconds = prefill
    for generated in range(1, point.new):
        cached = (point.batch * point.prompt + point.sequences * generated) * model.cached
        seconds += max(products, 4 * (weights + cached) / machine.bytes)
    return seconds


def generate(engine: Any, point: Point) -> None:
    """One call of the engine; equal prompts follow each other, as in a rollout."""
    import numpy as np

    from grrm.engine.api import SamplingParams

    prompts = np.random.default_rng(0).integers(5, 4000, (point.batch, point.prompt)).tolist()
    params = SamplingParams(max_new_tokens=point.new, min_new_tokens=point.new)
    engine.generate([prompt for prompt in prompts for _ in range(point.samples)], params)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def draw(result: dict[str, Any], path: Path) -> None:
    """Speed against each size with the bound above it, and in grey the memory of the cache."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    figure = Figure(figsize=(13, 7), layout="constrained")
    FigureCanvasAgg(figure)
    *panels, spare = figure.subplots(2, 3).flat
    for axes, (axis, title) in zip(panels, TITLES.items(), strict=True):
        rows = [row for row in result["rows"] if row["axis"] == axis]
        values = [row["value"] for row in rows]
        axes.plot(values, [row["bound_tokens_per_s"] for row in rows], "--", color="#c8641c")
        axes.plot(values, [row["tokens_per_s"] for row in rows], "o-", color="#2f6fb5")
        axes.set(xlabel=title, ylabel="tokens/s", xscale="log", yscale="log", xticks=values)
        axes.set_xticklabels([f"{value:,.0f}" for value in values])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.grid(color="#e3e6ea")
        memory = axes.twinx()
        memory.plot(values, [row["cache_mb"] for row in rows], ":", color="#8a8f98")
        memory.set(yscale="log", ylabel="MB")
        for scale in (axes.yaxis, memory.yaxis):
            scale.set_major_locator(LogLocator(subs=(1, 2, 5)))
            scale.set_minor_locator(NullLocator())
            scale.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    spare.set_axis_off()
    spare.legend([*axes.lines, *memory.lines], ["bound", "measured", "cache, MB"], loc="center", frameon=False)
    figure.savefig(path, dpi=110, format="png")


if __name__ == "__main__":
    main()
