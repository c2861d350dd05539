"""What the objective of a micro-batch returns, and how its parts combine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import paddle

from grrm.algorithms.policy_losses import LossInputs, TokenLoss

from .aggregation import Denominators, aggregate


@dataclass(frozen=True, eq=False)
class LossOutput:
    """A scalar loss with its graph, and scalar metrics without one.

    Every metric is a share of the whole batch's value, as the loss is: micro-batches add up. Names that end in
    ``_max`` are the exception and combine by maximum; :func:`merge_metrics` knows both.
    """

    loss: paddle.Tensor
    metrics: dict[str, paddle.Tensor]


def merge_metrics(parts: Sequence[Mapping[str, paddle.Tensor | float]]) -> dict[str, float]:
    """Return the whole batch's metrics from those of its micro-batches or ranks."""
    merged: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            if name not in merged:
                merged[name] = float(value)
            else:
                merged[name] = max(merged[name], float(value)) if name.endswith("_max") else merged[name] + float(value)
    return merged


@paddle.no_grad()
def ratio_metrics(loss: TokenLoss, inputs: LossInputs, denominators: Denominators) -> dict[str, paddle.Tensor]:
    """Return pg_clipfrac, pg_clipfrac_lower, ppo_kl (mean of old - new log-probability), ratio_mean and ratio_max."""
    ratio_RT = loss.ratio_RT

    def mean(values_RT: paddle.Tensor) -> paddle.Tensor:
        return aggregate(values_RT.astype(ratio_RT.dtype), inputs.mask_RT, "token-mean", denominators.tokens)

    metrics = {name: mean(where_RT) for name, where_RT in loss.clipped.items()}
    metrics.setdefault("pg_clipfrac_lower", paddle.zeros([], dtype=ratio_RT.dtype))
    metrics["ppo_kl"] = mean(inputs.old_logprobs_RT - inputs.logprobs_RT)
    metrics["ratio_mean"] = mean(ratio_RT)
    has_tokens = ratio_RT.size > 0
    metrics["ratio_max"] = (ratio_RT * inputs.mask_RT).max() if has_tokens else paddle.zeros([], dtype=ratio_RT.dtype)
    return metrics
