"""Soft adaptive policy optimisation: a smooth gate in place of the clip."""

from __future__ import annotations

from grrm.algorithms.policy_losses.interface import LossInputs, TokenLoss, policy_loss, token_log_ratio


@policy_loss(aggregation="seq-mean-token-mean")
def sapo(inputs: LossInputs, *, sapo_tau_pos: float, sapo_tau_neg: float) -> TokenLoss:
    """Return ``-A (4 / tau) sigmoid(tau (r_t - 1))`` per token, with ``r_t = exp(logp_t - old_logp_t)``.

    tau is sapo_tau_pos where A > 0 and sapo_tau_neg elsewhere. The gradient of r is weighted by ``4 sigmoid(x) (1 -
    sigmoid(x))`` with ``x = tau (r_t - 1)``: 1 at r = 1, less the further r is from it and the larger tau is. The paper
    takes 1.0 and 1.05, since updates from bad samples are less stable.

    Always aggregated by seq-mean-token-mean. Source: SAPO, arXiv 2511.20347, eq. 5 and 6.

    Degenerate: A = 0 gives 0, no tokens give 0.
    """
    ratio_RT = token_log_ratio(inputs).exp()
    is_positive_RT = inputs.advantages_RT > 0
    tau_RT = inputs.advantages_RT.masked_fill(is_positive_RT, sapo_tau_pos)
    tau_RT = tau_RT.masked_fill(is_positive_RT.logical_not(), sapo_tau_neg)
    gate_RT = (tau_RT * (ratio_RT - 1)).sigmoid() * 4 / tau_RT
    return TokenLoss(-inputs.advantages_RT * gate_RT, ratio_RT, {})
