"""Group sequence policy optimisation: one ratio per sequence."""

from __future__ import annotations

from grrm.algorithms.policy_losses.interface import LossInputs, TokenLoss, clipped_surrogate, policy_loss

MAX_LOG_RATIO = 10.0


@policy_loss(aggregation="seq-mean-token-mean")
def gspo(inputs: LossInputs, *, clip_range_ratio_low: float, clip_range_ratio_high: float) -> TokenLoss:
    """Return the clipped surrogate with the length-normalised ratio of the whole sequence.

    ``s_i = exp(mean_t(logp_t - old_logp_t))``; each token carries ``s_i`` in value and its own log-probability in
    gradient (``log r_t = logp_t - sg(logp_t) + sg(log s_i)``, at most 10). It is always aggregated by
    seq-mean-token-mean. Source: GSPO, arXiv 2507.18071, eq. 7 and GSPO-token, eq. 14.

    Degenerate: a row without tokens counts for nothing.
    """
    lengths_R1 = inputs.mask_RT.sum(axis=1, keepdim=True).clip(min=1.0)
    log_ratio_RT = inputs.logprobs_RT - inputs.old_logprobs_RT
    log_sequence_ratio_R1 = (log_ratio_RT.sum(axis=1, keepdim=True) / lengths_R1).detach()
    own_gradient_RT = inputs.logprobs_RT - inputs.logprobs_RT.detach()
    ratio_RT = (own_gradient_RT + log_sequence_ratio_R1).clip(max=MAX_LOG_RATIO).exp()
    return clipped_surrogate(ratio_RT, inputs, clip_range_ratio_low, clip_range_ratio_high)
