"""Metrics of an evaluation during training: pairs in order, margins, correlation; overall and by language pair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grrm.evaluation.bootstrap import Interval
from grrm.evaluation.candidate_pairs import pair_differences
from grrm.evaluation.meta_metrics import correlation
from grrm.evaluation.ranking import JudgedGroup, score_ranking

# Units of the loss: a margin of 3 is odds of 20 to 1 that the pair is in order.
MARGIN_EDGES = tuple(0.5 * step for step in range(-6, 7))


def pair_margins(groups: Sequence[JudgedGroup]) -> NDArray[np.float64]:
    """Score of the better candidate minus that of the worse one [pairs], for every pair of different gold."""
    _, gold = pair_differences([group.gold for group in groups])
    _, judged = pair_differences([group.judged for group in groups])
    return np.asarray((np.sign(gold) * judged)[gold != 0])


def summary(groups: Sequence[JudgedGroup], loss: float) -> dict[str, float]:
    """The numbers of an evaluation by name, for trackers and the choice of a checkpoint; NaN for what is not defined.

    Accuracy counts pairs of different gold, a tie as wrong; intervals (`_low`, `_high`) are at 95 %, over groups.
    """
    margins = pair_margins(groups)
    return {
        "eval_loss": loss,
        **_with_bounds("eval_pair_accuracy", score_ranking(groups).accuracy),
        **_with_bounds("eval_correlation", correlation(groups)),
        "eval_margin": float(margins.mean()) if len(margins) else math.nan,
    }


def details(groups: Sequence[JudgedGroup]) -> dict[str, Any]:
    """Details for metrics.jsonl beside the summary: the histogram of margins, and every language pair by itself.

    `eval_margins` counts the pairs between neighbouring `edges`, the first and the last count being those beyond.
    """
    edges = [-math.inf, *MARGIN_EDGES, math.inf]
    counts, _ = np.histogram(pair_margins(groups), bins=edges)
    by_pair: dict[str, list[JudgedGroup]] = {}
    for group in sorted(groups, key=lambda group: group.language_pair):
        by_pair.setdefault(group.language_pair, []).append(group)
    return {
        "eval_margins": {"edges": list(MARGIN_EDGES), "counts": counts.tolist()},
        "eval_language_pairs": {name: _of_language_pair(members) for name, members in by_pair.items()},
    }


def _of_language_pair(groups: Sequence[JudgedGroup]) -> dict[str, Any]:
    ranking = score_ranking(groups)
    return {
        "groups": ranking.n_groups,
        "pairs": ranking.n_pairs,
        "pair_accuracy": _as_list(ranking.accuracy),
        "correlation": _as_list(correlation(groups)),
    }


def console_line(n_groups: int, metrics: dict[str, float]) -> str:
    """An evaluation in a line."""
    parts = [
        f"{name} {metrics[key]:.3f} [{metrics[f'{key}_low']:.3f}, {metrics[f'{key}_high']:.3f}]"
        for name, key in (("pairs in order", "eval_pair_accuracy"), ("correlation", "eval_correlation"))
    ]
    return f"{n_groups} held-out groups: {', '.join(parts)}, loss {metrics['eval_loss']:.4g}"


def _with_bounds(name: str, interval: Interval | None) -> dict[str, float]:
    mean, low, high = _as_list(interval) or [math.nan] * 3
    return {name: mean, f"{name}_low": low, f"{name}_high": high}


def _as_list(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.mean, interval.low, interval.high]
