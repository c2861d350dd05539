"""Inputs and outputs of a policy loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import paddle


@dataclass(frozen=True, eq=False)
class LossInputs:
    """One micro-batch; R indexes responses, T their tokens. What stands outside the mask is never read.

    logprobs_RT: log-probability of each token under the policy being trained, in nats; carries the gradient.
    old_logprobs_RT: the same under the policy that the update starts from; a constant.
    advantages_RT: see ``grrm.rl.advantages``; a constant.
    mask_RT: 1 on response tokens, 0 elsewhere (bool or number).
    ref_logprobs_RT: the same as logprobs under the frozen reference, or None where no KL is wanted.
    entropy_RT: entropy of the policy at each token, in nats, with its gradient, or None.
    engine_logprobs_RT: the same as logprobs under the engine that sampled the tokens, or None if not needed.
    """

    logprobs_RT: paddle.Tensor
    old_logprobs_RT: paddle.Tensor
    advantages_RT: paddle.Tensor
    mask_RT: paddle.Tensor
    ref_logprobs_RT: paddle.Tensor | None = None
    entropy_RT: paddle.Tensor | None = None
    engine_logprobs_RT: paddle.Tensor | None = None

    def masked(self) -> LossInputs:
        """Return the inputs with 0 outside the mask and constants cut from the graph: padding cannot spread NaN."""
        mask_RT = self.mask_RT.astype("bool")
        dtype = self.logprobs_RT.dtype

        def constant(values_RT: paddle.Tensor) -> paddle.Tensor:
            return keep(values_RT.detach().astype(dtype), mask_RT)

        def optional(values_RT: paddle.Tensor | None) -> paddle.Tensor | None:
            return None if values_RT is None else constant(values_RT)

        return replace(
            self,
            logprobs_RT=keep(self.logprobs_RT, mask_RT),
            old_logprobs_RT=constant(self.old_logprobs_RT),
            advantages_RT=constant(self.advantages_RT),
            mask_RT=mask_RT.astype(dtype),
            ref_logprobs_RT=optional(self.ref_logprobs_RT),
            entropy_RT=None if self.entropy_RT is None else keep(self.entropy_RT, mask_RT),
            engine_logprobs_RT=optional(self.engine_logprobs_RT),
        )


@dataclass(frozen=True, eq=False)
class TokenLoss:
    """A policy loss per token, before aggregation, with its graph.

    ratio_RT: the probability ratio that was clipped. clipped: metric name to where ([R, T] bool) a bound took effect.
    """

    loss_RT: paddle.Tensor
    ratio_RT: paddle.Tensor
    clipped: Mapping[str, paddle.Tensor]


@dataclass(frozen=True, eq=False)
class LossOutput:
    """A scalar loss with its graph, and scalar metrics without one.

    Every metric is a share of the whole batch's value, as the loss is: micro-batches add up. Names that end in
    ``_max`` are the exception and combine by maximum; :func:`merge_metrics` knows both.
    """

    loss: paddle.Tensor
    metrics: dict[str, paddle.Tensor]


def keep(values_RT: paddle.Tensor, mask_RT: paddle.Tensor) -> paddle.Tensor:
    """Return values where the mask is set and 0 elsewhere, with zero gradient there even if a value was NaN."""
    return paddle.where(mask_RT.astype("bool"), values_RT, paddle.zeros_like(values_RT))


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
