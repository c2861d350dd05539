"""Generalised advantage estimation, for a policy with a critic."""

from __future__ import annotations

import numpy as np

from grrm.algorithms.advantages.interface import AdvantageInputs, FloatArray, advantage_rule
from grrm.algorithms.advantages.reinforce_plus_plus import add_final_score, discounted_returns
from grrm.rewards.failure_policy import FailureAction

ROUNDING = 1e-20  # a variance of targets below it


@advantage_rule(
    compares_with_group=False,
    divides_by="batch_std",
    per_token=True,
    kl_in_reward=True,
    single_candidate=FailureAction.MASK,
    needs_critic=True,
)
def gae(inputs: AdvantageInputs) -> FloatArray:
    """Return advantages [R, T] of each token against the critic's values.

    ``delta_t = r_t + gamma * V_{t+1} - V_t`` and ``A_t = delta_t + gamma * gae_lambda * A_{t+1}``, where ``r_t`` is
    ``-kl_coeff * (logp_t - ref_logp_t)``, plus the clipped score at the last token. ``V_t`` is the value of the state
    before token t; the state behind the last token is terminal, with value 0.

    Source: arXiv 1506.02438, eq. 16.

    Groups play no part. Advantages are normalised over the batch afterwards, unless ``normalize_advantage`` is off.

    Degenerate: ``gae_lambda`` 1 gives the discounted return minus V_t, 0 the one-step error; a row without a score or
    without tokens gets 0. Raises ValueError without values.
    """
    if inputs.values_RT is None:
        raise ValueError("gae needs values_RT, the critic's values")
    valid_RT = inputs.valid_RT
    values_RT = np.where(valid_RT, inputs.values_RT, 0.0)
    deltas_RT = add_final_score(inputs.kl_rewards_RT, inputs.scores_R, valid_RT) - values_RT
    deltas_RT[:, :-1] += inputs.gamma * values_RT[:, 1:]
    return discounted_returns(deltas_RT, valid_RT, inputs.gamma * inputs.gae_lambda) * valid_RT


def value_targets(inputs: AdvantageInputs) -> FloatArray | None:
    """Return the targets of the critic's values [R, T], ``A_t + V_t``: the TD(gae_lambda) return. None without values.

    0 on rows without a score and on padding.
    """
    if inputs.values_RT is None:
        return None
    return np.where(inputs.valid_RT, gae(inputs) + inputs.values_RT, 0.0)


def value_fit(inputs: AdvantageInputs) -> dict[str, float]:
    """Return how well the values predict their targets: ``explained_variance``, ``value_target_mean`` over all tokens.

    ``explained_variance`` is ``1 - var(target - V) / var(target)``: 1 for a perfect critic, 0 for a
    constant one, negative for a worse one; NaN where all targets are equal but for rounding. Nothing without a
    critic or tokens.
    """
    targets_RT, valid_RT = value_targets(inputs), inputs.valid_RT
    if targets_RT is None or inputs.values_RT is None or not valid_RT.any():
        return {}
    targets_N, values_N = targets_RT[valid_RT], inputs.values_RT[valid_RT]
    spread = float(np.var(targets_N))
    explained = 1.0 - float(np.var(targets_N - values_N)) / spread if spread > ROUNDING else float("nan")
    return {"explained_variance": explained, "value_target_mean": float(np.mean(targets_N))}
