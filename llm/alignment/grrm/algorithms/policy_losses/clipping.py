"""The clipped surrogate that policy losses share."""

from __future__ import annotations

import math

from grrm.algorithms.policy_losses.interface import LossInputs, Tensor, TokenLoss


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
