"""A policy loss with its traits, its inputs and its output; the clipped surrogate that several share."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

Tensor: TypeAlias = Any  # a paddle.Tensor; Paddle itself is not imported, since configuration reads the traits
Aggregation = Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]


@dataclass(frozen=True, eq=False)
class LossInputs:
    """One micro-batch; R indexes responses, T their tokens. What stands outside the mask is never read.

    logprobs_RT: log-probability of each token under the policy being trained, in nats; carries the gradient.
    old_logprobs_RT: the same under the policy that the update starts from; a constant.
    advantages_RT: see ``grrm.algorithms.advantages``; a constant.
    mask_RT: 1 on response tokens, 0 elsewhere (bool or number).
    ref_logprobs_RT: the same as logprobs under the frozen reference, or None where no KL is wanted.
    entropy_RT: entropy of the policy at each token, in nats, with its gradient, or None.
    engine_logprobs_RT: the same as logprobs under the engine that sampled the tokens, or None if not needed.
    """

    logprobs_RT: Tensor
    old_logprobs_RT: Tensor
    advantages_RT: Tensor
    mask_RT: Tensor
    ref_logprobs_RT: Tensor | None = None
    entropy_RT: Tensor | None = None
    engine_logprobs_RT: Tensor | None = None

    def masked(self) -> LossInputs:
        """Return the inputs with 0 outside the mask and constants cut from the graph: padding cannot spread NaN."""
        mask_RT = self.mask_RT.astype("bool")
        dtype = self.logprobs_RT.dtype

        def constant(values_RT: Tensor) -> Tensor:
            return keep(values_RT.detach().astype(dtype), mask_RT)

        def optional(values_RT: Tensor | None) -> Tensor | None:
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

    loss_RT: Tensor
    ratio_RT: Tensor
    clipped: Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class PolicyLoss:
    """A policy loss and its traits.

    function: from ``LossInputs.masked()`` to a `TokenLoss`. Its keyword-only parameters are the keys of the argument
        file that it reads; a file that sets another loss's keys is told that they have no effect.
    aggregation: how its tokens are aggregated whatever `loss_agg_mode` says, or None.
    """

    function: Callable[..., TokenLoss]
    aggregation: Aggregation | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the argument file that the loss reads."""
        parameters = inspect.signature(self.function).parameters.values()
        return tuple(parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY)

    def __call__(self, inputs: LossInputs, config: object) -> TokenLoss:
        """Return the loss of each token with the keys of `config`."""
        return self.function(inputs, **{key: getattr(config, key) for key in self.keys})


MAX_LOG_RATIO = 20.0
POLICY_LOSSES: dict[str, PolicyLoss] = {}


def policy_loss(*, aggregation: Aggregation | None = None) -> Callable[[Callable[..., TokenLoss]], PolicyLoss]:
    """Register the decorated function under its name as a `PolicyLoss`. Raises ValueError for a name that is taken."""

    def register(function: Callable[..., TokenLoss]) -> PolicyLoss:
        name = function.__name__
        if name in POLICY_LOSSES:
            raise ValueError(f"there is a policy loss {name!r} already")
        POLICY_LOSSES[name] = PolicyLoss(function, aggregation)
        return POLICY_LOSSES[name]

    return register


def keep(values_RT: Tensor, mask_RT: Tensor) -> Tensor:
    """Return values where the mask is set and 0 elsewhere, with zero gradient there even if a value was NaN."""
    return values_RT.masked_fill(mask_RT.astype("bool").logical_not(), 0.0)


def token_log_ratio(inputs: LossInputs) -> Tensor:
    """``logp_t - old_logp_t`` with its gradient [R, T], in nats, between -20 and 20 so that exp does not overflow."""
    return (inputs.logprobs_RT - inputs.old_logprobs_RT).clip(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def clipped_surrogate(
    ratio_RT: Tensor, inputs: LossInputs, low: float, high: float, dual: float | None = None
) -> TokenLoss:
    """Return ``max(-A r, -A clip(r, 1 - low, 1 + high))`` per token.

    With ``dual`` c the loss of a token with A < 0 is at most ``-A c`` (arXiv 1912.09729, eq. 5). The gradient is that
    of this very expression: zero where the clipped branch wins. Source: PPO, arXiv 1707.06347, eq. 7; separate bounds:
    DAPO, arXiv 2503.14476. Degenerate: A = 0 gives 0.

    Args:
        ratio_RT: the probability ratio, with its gradient.
        inputs: the micro-batch, 0 outside the mask.
        low: the lower bound of the ratio is 1 - low.
        high: the upper bound of the ratio is 1 + high.
        dual: bound of the ratio where the advantage is negative, above 1; None for none.
    """
    unclipped_RT = -inputs.advantages_RT * ratio_RT
    clipped_RT = -inputs.advantages_RT * ratio_RT.clip(1 - low, 1 + high)
    loss_RT = unclipped_RT.maximum(clipped_RT)
    clipped = {"pg_clipfrac": clipped_RT > unclipped_RT}
    if dual is not None:
        is_negative_RT = inputs.advantages_RT < 0
        bound_RT = (-inputs.advantages_RT * dual).masked_fill(is_negative_RT.logical_not(), math.inf)
        clipped["pg_clipfrac_lower"] = loss_RT > bound_RT
        loss_RT = loss_RT.minimum(bound_RT)
    return TokenLoss(loss_RT, ratio_RT, clipped)
