"""Metrics of the optimizer steps between two log lines, averaged over micro-batches and ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import paddle

from grrm.parallel.data_ranks import DataRanks
from grrm.rl.losses.interface import merge_metrics

Gap = tuple[float, float, float]


def logprob_gap(logprobs_RT: paddle.Tensor, engine_RT: paddle.Tensor, mask_RT: paddle.Tensor) -> Gap:
    """Sum and maximum of |trainer - engine| log-probability over valid tokens, and their number.

    Both are of the policy that sampled, so this is the mismatch between the two forward passes on every update.
    """
    gap_RT = paddle.abs(logprobs_RT.detach() - engine_RT) * mask_RT
    return float(gap_RT.sum()), float(gap_RT.max()), float(mask_RT.sum())


def merge_gaps(gaps: Sequence[Gap]) -> Gap:
    """The gap of all tokens from those of parts of them; zeros for none."""
    return sum(gap[0] for gap in gaps), max((gap[1] for gap in gaps), default=0.0), sum(gap[2] for gap in gaps)


class StepMetrics:
    """Loss metrics, which are shares that add up over micro-batches and ranks, averaged over optimizer steps.

    `set` values belong to the rollout, are equal on every rank, and are passed through.
    """

    def __init__(self, ranks: DataRanks, micro_batches_per_update: int) -> None:
        self.ranks, self.micro_batches_per_update = ranks, micro_batches_per_update
        self._rollout: dict[str, float] = {}
        self._clear()

    def _clear(self) -> None:
        self._shares: list[Mapping[str, float]] = []
        self._gaps: list[Gap] = []

    def set(self, metrics: dict[str, float]) -> None:
        """Replace the rollout's metrics."""
        self._rollout = dict(metrics)

    def add(self, metrics: Mapping[str, Any], gap: Gap) -> None:
        """Add one micro-batch's loss metrics and its `logprob_gap`."""
        self._shares.append({name: float(value) for name, value in metrics.items()})
        self._gaps.append(gap)

    def collect(self) -> dict[str, float]:
        """Everything added since the last call, over all ranks. A collective: every rank must call it."""
        parts = self.ranks.gather((merge_metrics(self._shares), self._gaps))
        updates = max(len(self._shares) / self.micro_batches_per_update, 1.0)
        self._clear()
        merged = merge_metrics([part[0] for part in parts])
        total, largest, n_tokens = merge_gaps([gap for part in parts for gap in part[1]])
        return {
            **self._rollout,
            **{name: value if name.endswith("_max") else value / updates for name, value in merged.items()},
            "logprob_gap_mean": total / max(n_tokens, 1.0),
            "logprob_gap_max": largest,
        }
