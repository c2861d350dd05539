"""PPO's clipped loss, one ratio per token."""

from __future__ import annotations

from grrm.algorithms.policy_losses.interface import (
    LossInputs,
    TokenLoss,
    clipped_surrogate,
    policy_loss,
    token_log_ratio,
)


@policy_loss()
def token_clip(
    inputs: LossInputs,
    *,
    clip_range_ratio_low: float,
    clip_range_ratio_high: float,
    dual_clip_ratio: float | None,
) -> TokenLoss:
    """Return the clipped surrogate with ``r_t = exp(logp_t - old_logp_t)``.

    ``log r`` is clamped to plus or minus 20 first, as verl does (PaddleNLP does not). Source: PPO, arXiv 1707.06347.
    Degenerate: no tokens give 0.
    """
    ratio_RT = token_log_ratio(inputs).exp()
    return clipped_surrogate(ratio_RT, inputs, clip_range_ratio_low, clip_range_ratio_high, dual_clip_ratio)
