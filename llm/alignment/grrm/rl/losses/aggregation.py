"""Aggregation of token losses and of their metrics, independent of how the batch is split into micro-batches.

Averaging inside each micro-batch and then over micro-batches would weight tokens depending on the split. Here the
denominators are counted over the whole batch beforehand, and each micro-batch contributes its share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import paddle

from grrm.algorithms.policy_losses import LossInputs, TokenLoss
from grrm.algorithms.policy_losses.interface import keep


@dataclass(frozen=True)
class Denominators:
    """Counts of the batch of one optimizer step, over all micro-batches and ranks.

    tokens: response tokens. sequences: responses with at least one token.
    sft_tokens, sft_sequences: the same, counting only tokens with a positive advantage.
    width: response positions including padding; seq-mean-token-sum-norm divides by it, too.
    """

    tokens: float
    sequences: float
    sft_tokens: float
    sft_sequences: float
    width: float

    def of(self, mode: str) -> float:
        """Return the divisor of an aggregation mode; ValueError for an unknown one."""
        return _divisor(mode, self.tokens, self.sequences, self.width)

    def of_sft(self, mode: str) -> float:
        """Return the divisor of the same mode for the SFT term."""
        return _divisor(mode, self.sft_tokens, self.sft_sequences, self.width)


def count_denominators(
    mask_RT: npt.NDArray[Any], advantages_RT: npt.NDArray[Any], width: float | None = None
) -> Denominators:
    """Count what ``mask_RT`` holds. ``width`` defaults to T; give it where micro-batches are padded differently."""
    mask_RT = np.asarray(mask_RT).astype(bool)
    positive_RT = mask_RT & (np.asarray(advantages_RT) > 0)
    return Denominators(
        tokens=float(mask_RT.sum()),
        sequences=float(mask_RT.any(axis=1).sum()),
        sft_tokens=float(positive_RT.sum()),
        sft_sequences=float(positive_RT.any(axis=1).sum()),
        width=float(mask_RT.shape[1] if width is None else width),
    )


def aggregate(loss_RT: paddle.Tensor, mask_RT: paddle.Tensor, mode: str, denominator: float) -> paddle.Tensor:
    """Return the loss over masked tokens as a scalar.

    token-mean: sum / tokens. seq-mean-token-sum: sum / sequences. seq-mean-token-mean: sum over rows of the row's mean
    / sequences. seq-mean-token-sum-norm: sum / (width * sequences) (Dr. GRPO, arXiv 2503.20783, and its code; verl's
    gen_rm branch leaves the sequences out, so that its gradient grows with the batch). A row without tokens is not a
    sequence.

    ``denominator`` is that of the whole batch, see :class:`Denominators`, so that partial losses add up to its loss.
    Where a trainer divides the loss by its accumulation steps or averages gradients over ranks, it has to be multiplied
    by those numbers.

    Degenerate: no tokens at all give 0 with zero gradient.
    """
    mask_RT = mask_RT.astype(loss_RT.dtype)
    total_R = keep(loss_RT, mask_RT).sum(axis=1)
    if mode == "seq-mean-token-mean":
        total_R = total_R / paddle.clip(mask_RT.sum(axis=1), min=1.0)
    return total_R.sum() / max(denominator, 1.0)


def _divisor(mode: str, tokens: float, sequences: float, width: float) -> float:
    if mode == "token-mean":
        return tokens
    if mode in ("seq-mean-token-sum", "seq-mean-token-mean"):
        return sequences
    if mode == "seq-mean-token-sum-norm":
        return width * sequences
    raise ValueError(f"unknown aggregation mode {mode!r}")


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
