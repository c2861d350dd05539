"""REINFORCE++: returns with the KL inside the reward, whitened over the global batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from grrm.algorithms.advantages.interface import AdvantageInputs, FloatArray, advantage_rule
from grrm.algorithms.advantages.moments import whiten
from grrm.rewards.failure_policy import FailureAction


@advantage_rule(
    compares_with_group=False,
    divides_by="batch_std",
    per_token=True,
    kl_in_reward=True,
    single_candidate=FailureAction.MASK,
)
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
    return whiten(discounted_returns(rewards_RT, valid_RT, inputs.gamma), valid_RT)


def add_final_score(token_rewards_RT: FloatArray, scores_R: FloatArray, mask_RT: npt.NDArray[Any]) -> FloatArray:
    """Return token rewards with each response's score added at its last token; the input stays as it is.

    A response without tokens has no place for its score, which is then left out.
    """
    mask_RT = np.asarray(mask_RT).astype(bool)
    rewards_RT = token_rewards_RT.copy()
    rows = np.flatnonzero(mask_RT.any(axis=1))
    if rows.size:
        last_token = mask_RT.shape[1] - 1 - np.argmax(mask_RT[rows, ::-1], axis=1)
        rewards_RT[rows, last_token] += scores_R[rows]
    return rewards_RT


def discounted_returns(rewards_RT: FloatArray, mask_RT: npt.NDArray[Any], gamma: float = 1.0) -> FloatArray:
    """Return ``R_t = r_t + gamma * mask_{t+1} * R_{t+1}`` [R, T].

    Rewards on padding do not enter the return of a response token; on padding the return is the reward itself, as in
    PaddleNLP.
    """
    returns_TR = np.array(rewards_RT.T, dtype=np.float64, order="C")
    mask_TR = np.asarray(mask_RT, dtype=np.float64).T
    for t in range(len(returns_TR) - 2, -1, -1):
        returns_TR[t] += gamma * mask_TR[t + 1] * returns_TR[t + 1]
    return np.ascontiguousarray(returns_TR.T)
