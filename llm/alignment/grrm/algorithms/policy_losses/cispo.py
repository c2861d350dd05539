"""CISPO: the importance weight is clipped, and no token loses its gradient."""

from __future__ import annotations

from grrm.algorithms.policy_losses.interface import LossInputs, TokenLoss, policy_loss, token_log_ratio


@policy_loss()
def cispo(inputs: LossInputs, *, clip_range_ratio_high: float) -> TokenLoss:
    """Return ``-sg(min(r_t, 1 + clip_range_ratio_high)) A log p_t`` per token, with ``r_t = exp(logp_t - old_logp_t)``.

    sg stops the gradient. PPO's clip removes the gradient of a token whose ratio is out of bounds; this weight stays at
    the bound. The lower bound of eq. 5 is left out, as in the paper's experiments. The value of the loss is not
    comparable with other losses; its gradient at r = 1 is theirs.

    Source: MiniMax-M1, arXiv 2506.13585, eq. 4 and 5.

    Degenerate: A = 0 gives 0, no tokens give 0.
    """
    ratio_RT = token_log_ratio(inputs).detach().exp()
    weight_RT = ratio_RT.clip(max=1 + clip_range_ratio_high)
    loss_RT = -(weight_RT * inputs.advantages_RT) * inputs.logprobs_RT
    return TokenLoss(loss_RT, ratio_RT, {"pg_clipfrac": ratio_RT > weight_RT})
