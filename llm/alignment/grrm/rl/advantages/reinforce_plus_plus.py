"""REINFORCE++: returns with the KL inside the reward, whitened over the global batch."""

from __future__ import annotations

from .interface import AdvantageInputs, FloatArray
from .token_rewards import add_final_score, discounted_returns
from .whitening import whiten_or_zero


def reinforce_plus_plus(inputs: AdvantageInputs) -> FloatArray:
    """Return REINFORCE++ advantages [R, T].

    ``r_t = -kl_coeff * (logp_t - ref_logp_t)``, plus the clipped score at the last token;
    ``R_t = r_t + gamma * R_{t+1}``; ``A = (R - mean(R)) / sqrt(var(R) + 1e-8)`` over all tokens of scored responses
    in the *global* batch. Source: arXiv 2501.03262; numbers as PaddleNLP's ``reinforce_plus_plus``.

    Groups play no part, so a group of one is as good as any. Degenerate: fewer than two tokens, or equal returns
    everywhere, give 0; a response without tokens counts for nothing.
    """
    valid_RT = inputs.valid_RT
    rewards_RT = add_final_score(inputs.kl_rewards_RT, inputs.scores_R, valid_RT)
    return whiten_or_zero(discounted_returns(rewards_RT, valid_RT, inputs.gamma), valid_RT)
