"""Geometric-mean policy optimisation: one ratio per sequence, clipped token by token."""

from __future__ import annotations

from grrm.algorithms.policy_losses.interface import LossInputs, TokenLoss, policy_loss, token_log_ratio


@policy_loss(aggregation="seq-mean-token-mean")
def gmpo(inputs: LossInputs, *, clip_range_ratio_low: float, clip_range_ratio_high: float) -> TokenLoss:
    """Return ``-A exp(mean_t(l_t))`` on each token of a response: the geometric mean of its clipped ratios.

    With ``d_t = logp_t - old_logp_t``, low = clip_range_ratio_low and high = clip_range_ratio_high: ``l_t = min(d_t,
    high)`` where A > 0 and ``max(d_t, -low)`` where A < 0. The bounds are of the log ratio, and the paper's are 0.4.
    Always aggregated by seq-mean-token-mean, so that a response counts once.

    Source: Geometric-Mean Policy Optimization, arXiv 2507.20673, section 3; bounds: section 4.

    Degenerate: A = 0 gives 0; a row without tokens counts for nothing.
    """
    log_ratio_RT = token_log_ratio(inputs)
    too_high_RT = (inputs.advantages_RT > 0).logical_and(log_ratio_RT > clip_range_ratio_high)
    too_low_RT = (inputs.advantages_RT < 0).logical_and(log_ratio_RT < -clip_range_ratio_low)
    clipped_RT = log_ratio_RT.masked_fill(too_high_RT, clip_range_ratio_high)
    clipped_RT = clipped_RT.masked_fill(too_low_RT, -clip_range_ratio_low)
    lengths_R1 = inputs.mask_RT.sum(axis=1, keepdim=True).clip(min=1.0)
    ratio_RT = (clipped_RT.sum(axis=1, keepdim=True) / lengths_R1).exp().expand_as(log_ratio_RT)
    return TokenLoss(-inputs.advantages_RT * ratio_RT, ratio_RT, {"pg_clipfrac": too_high_RT.logical_or(too_low_RT)})
