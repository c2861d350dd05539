"""Importance weights between the engine that sampled the tokens and the trainer's own policy."""

from __future__ import annotations

import paddle

from grrm.algorithms.policy_losses import LossInputs
from grrm.config.keys.objective import PolicyLossConfig
from grrm.rl.losses.aggregation import Denominators, aggregate

MAX_LOG_RATIO = 20.0


@paddle.no_grad()
def rollout_correction(
    inputs: LossInputs, config: PolicyLossConfig, denominators: Denominators
) -> tuple[paddle.Tensor, dict[str, paddle.Tensor]]:
    """Return the weight of each token's policy loss [R, T] and metrics of the weights.

    An engine that rounds differently from the trainer, or whose weights are one step older, samples from q, while the
    update assumes p, the policy it starts from. Samples are weighted by w, of which ``rollout_is`` is the unit:

    * token: ``w_t = p(y_t) / q(y_t)``. Low variance, but the effect of a token on the states after it is not corrected.
    * sequence: ``w_t = prod_s p(y_s) / q(y_s)`` for every t. Unbiased without bounds; the variance grows with the
      length.

    Between ``rollout_is_floor`` and ``rollout_is_cap`` a weight stays as it is. Beyond them it is set to the bound with
    ``rollout_is_mode`` truncate, and to 0 with mask: the token, or the response, has no part in the policy gradient,
    while the denominators still count it.

    The policy ratio and its clip stay between p and the policy that is being trained. Degenerate: equal
    log-probabilities give weights of exactly 1.

    Source: truncated importance sampling, Ionides, J. Comput. Graph. Stat. 17(2), 2008; between engine and trainer:
    Yao et al., "Your efficient RL framework secretly brings you off-policy RL training", 2025; masks with two bounds:
    IcePop, arXiv 2510.18855; a behaviour policy apart from the one that the ratio is clipped around: Hilton et al.,
    arXiv 2110.00641.

    Metrics, over tokens or with ``sequence`` over responses: ``rollout_is_mean`` of the weights, ``rollout_is_capped``
    the share above the upper bound, ``rollout_is_floored`` the share below the lower one if that is not 0,
    ``rollout_is_max`` the largest ratio before. Expects ``inputs.masked()``; raises ValueError where they have no
    ``engine_logprobs_RT``.
    """
    if inputs.engine_logprobs_RT is None:
        raise ValueError(f"rollout_is is {config.rollout_is} but engine_logprobs_RT is missing")
    low, high = config.rollout_is_floor, config.rollout_is_cap
    log_ratio_RT = inputs.old_logprobs_RT - inputs.engine_logprobs_RT
    mode, count = "token-mean", denominators.tokens
    if config.rollout_is == "sequence":
        log_ratio_RT = log_ratio_RT.sum(axis=1, keepdim=True).expand_as(log_ratio_RT)
        mode, count = "seq-mean-token-mean", denominators.sequences
    ratio_RT = paddle.exp(paddle.clip(log_ratio_RT, max=MAX_LOG_RATIO))
    is_above_RT, is_below_RT = ratio_RT > high, ratio_RT < low
    if config.rollout_is_mode == "mask":
        weights_RT = ratio_RT.masked_fill(is_above_RT.logical_or(is_below_RT), 0.0)
    else:
        weights_RT = paddle.clip(ratio_RT, low, high)

    def mean(values_RT: paddle.Tensor) -> paddle.Tensor:
        return aggregate(values_RT.astype(ratio_RT.dtype), inputs.mask_RT, mode, count)

    metrics = {
        "rollout_is_mean": mean(weights_RT),
        "rollout_is_capped": mean(is_above_RT),
        **({"rollout_is_floored": mean(is_below_RT)} if low else {}),
        "rollout_is_max": (ratio_RT * inputs.mask_RT).max() if ratio_RT.size else paddle.zeros([], ratio_RT.dtype),
    }
    return weights_RT, metrics
