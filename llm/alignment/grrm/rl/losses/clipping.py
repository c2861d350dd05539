"""The clipped surrogate that both policy losses share, and its metrics."""

from __future__ import annotations

import paddle

from .aggregation import Denominators, aggregate
from .config import PolicyLossConfig
from .interface import LossInputs, LossOutput


def clipped_surrogate(
    ratio_BT: paddle.Tensor, inputs: LossInputs, config: PolicyLossConfig, mode: str, denominators: Denominators
) -> LossOutput:
    """Return ``max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high))`` aggregated by ``mode``.

    With ``dual_clip`` c the loss of a token with A < 0 is at most ``-A c`` (arXiv 1912.09729, eq. 5). The gradient is
    that of this very expression: zero where the clipped branch wins. Source: PPO, arXiv 1707.06347, eq. 7; separate
    bounds: DAPO, arXiv 2503.14476. Expects inputs that are 0 outside the mask. Degenerate: A = 0 gives 0.
    """
    unclipped_BT = -inputs.advantages_BT * ratio_BT
    clipped_BT = -inputs.advantages_BT * paddle.clip(ratio_BT, 1 - config.clip_low, 1 + config.clip_high)
    loss_BT = paddle.maximum(unclipped_BT, clipped_BT)
    shares = {"pg_clipfrac": clipped_BT > unclipped_BT}
    if config.dual_clip is not None:
        is_negative_BT = inputs.advantages_BT < 0
        bound_BT = -inputs.advantages_BT * config.dual_clip
        shares["pg_clipfrac_lower"] = paddle.logical_and(is_negative_BT, loss_BT > bound_BT)
        loss_BT = paddle.where(is_negative_BT, paddle.minimum(loss_BT, bound_BT), loss_BT)
    loss = aggregate(loss_BT, inputs.mask_BT, mode, denominators.of(mode))
    return LossOutput(loss, _metrics(ratio_BT, inputs, shares, denominators))


@paddle.no_grad()
def _metrics(
    ratio_BT: paddle.Tensor, inputs: LossInputs, shares: dict[str, paddle.Tensor], denominators: Denominators
) -> dict[str, paddle.Tensor]:
    def mean(values_BT: paddle.Tensor) -> paddle.Tensor:
        return aggregate(values_BT.astype(ratio_BT.dtype), inputs.mask_BT, "token-mean", denominators.tokens)

    metrics = {name: mean(clipped_BT) for name, clipped_BT in shares.items()}
    metrics.setdefault("pg_clipfrac_lower", paddle.zeros([], dtype=ratio_BT.dtype))
    metrics["ppo_kl"] = mean(inputs.old_logprobs_BT - inputs.logprobs_BT)
    metrics["ratio_mean"] = mean(ratio_BT)
    has_tokens = ratio_BT.size > 0
    metrics["ratio_max"] = (ratio_BT * inputs.mask_BT).max() if has_tokens else paddle.zeros([], dtype=ratio_BT.dtype)
    return metrics
