"""AdamW, its gradient clipping and the learning-rate schedules."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from oracle.run_files import Arrays, State


def step(state: State, gradient: Arrays, base_rate: float, arguments: dict[str, Any]) -> State:
    """One step of AdamW (Loshchilov and Hutter, 2019) on a gradient that is clipped by its norm over all weights.

    Biases and the weights of norms do not decay. A weight without a gradient stays as it is.
    """
    norm = global_norm(gradient)
    limit = arguments["max_grad_norm"]
    factor = limit / max(norm, limit) if limit > 0 else 1.0
    b1, b2, epsilon = (arguments[f"adam_{name}"] for name in ("beta1", "beta2", "epsilon"))
    n = state.step + 1
    weights, first, second = dict(state.weights), dict(state.moment1), dict(state.moment2)
    share = (arguments.get("backbone_learning_rate") or arguments["learning_rate"]) / arguments["learning_rate"]
    for name, raw in gradient.items():
        rate = base_rate * share if name.startswith("backbone.") else base_rate
        clipped = raw * factor
        first[name] = b1 * state.moment1[name] + (1 - b1) * clipped
        second[name] = b2 * state.moment2[name] + (1 - b2) * clipped**2
        decay = 0.0 if "norm" in name or "bias" in name else arguments["weight_decay"]
        move = first[name] / (1 - b1**n) / (np.sqrt(second[name] / (1 - b2**n)) + epsilon)
        weights[name] = state.weights[name] * (1 - rate * decay) - rate * move
    return State(weights, first, second, n)


def global_norm(gradient: Arrays) -> float:
    """Euclidean norm over all weights."""
    return math.sqrt(sum(float((part**2).sum()) for part in gradient.values()))


def learning_rate(arguments: dict[str, Any], n_done: int) -> float:
    """The learning rate of the step behind `n_done` others."""
    total, base, kind = arguments["max_steps"], arguments["learning_rate"], arguments["lr_scheduler_type"]
    warmup = arguments.get("warmup_steps") or int(arguments["warmup_ratio"] * total)
    if n_done < warmup:
        return base * n_done / warmup
    progress = (n_done - warmup) / max(1, total - warmup)
    if kind == "linear":
        return base * max(0.0, 1 - progress)
    if kind == "polynomial":
        end = arguments["lr_end"]
        return end + (base - end) * (1 - min(progress, 1.0)) ** arguments["power"]
    if kind == "cosine":
        floor = arguments.get("min_learning_rate") or 0.0
        return floor + (base - floor) * max(0.0, (1 + math.cos(2 * math.pi * arguments["num_cycles"] * progress)) / 2)
    assert kind in ("constant", "constant_with_warmup"), kind
    return base
