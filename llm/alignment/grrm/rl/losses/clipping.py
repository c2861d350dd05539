"""The clipped surrogate that both policy losses share, and its metrics."""

from __future__ import annotations

import paddle

from .aggregation import Denominators, aggregate
from .config import PolicyLossConfig
from .interface import LossInputs, TokenLoss


def clipped_surrogate(ratio_RT: paddle.Tensor, inputs: LossInputs, config: PolicyLossConfig) -> TokenLoss:
    """Return ``max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high))`` per token.

    With ``dual_clip`` c the loss of a token with A < 0 is at most ``-A c`` (arXiv 1912.09729, eq. 5). The gradient is
    that of this very expression: zero where the clipped branch wins. Source: PPO, arXiv 1707.06347, eq. 7; separate
    bounds: DAPO, arXiv 2503.14476. Expects inputs that are 0 outside the mask. Degenerate: A = 0 gives 0.
    """
    unclipped_RT = -inputs.advantages_RT * ratio_RT
    clipped_RT = -inputs.advantages_RT * paddle.clip(ratio_RT, 1 - config.clip_low, 1 + config.clip_high)
    loss_RT = paddle.maximum(unclipped_RT, clipped_RT)
    clipped = {"pg_clipfrac": clipped_RT > unclipped_RT}
    if config.dual_clip is not None:
        is_negative_RT = inputs.advantages_RT < 0
        bound_RT = -inputs.advantages_RT * config.dual_clip
        clipped["pg_clipfrac_lower"] = paddle.logical_and(is_negative_RT, loss_RT > bound_RT)
        loss_RT = paddle.where(is_negative_RT, paddle.minimum(loss_RT, bound_RT), loss_RT)
    return TokenLoss(loss_RT, ratio_RT, clipped)


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
