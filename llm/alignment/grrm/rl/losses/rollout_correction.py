"""Truncated importance weights between the engine that sampled the tokens and the trainer's own policy."""

from __future__ import annotations

import paddle

from grrm.algorithms.policy_losses import LossInputs
from grrm.config.keys.objective import PolicyLossConfig

from .aggregation import Denominators, aggregate

MAX_LOG_RATIO = 20.0


@paddle.no_grad()
def rollout_correction(
    inputs: LossInputs, config: PolicyLossConfig, denominators: Denominators
) -> tuple[paddle.Tensor, dict[str, paddle.Tensor]]:
    """Return the weight of each token's policy loss [R, T] and metrics of the weights.

    An engine that rounds differently from the trainer, or whose weights are one step older, samples from q, while the
    update assumes p, the policy it starts from. Samples are weighted by ``min(p / q, rollout_is_cap)``:

    * ``rollout_is`` token: ``w_t = min(p(y_t) / q(y_t), cap)``. Low variance, but the effect of a token on the states
      after it is not corrected.
    * sequence: ``w_t = min(prod_s p(y_s) / q(y_s), cap)`` for every t. Unbiased without the cap; the variance grows
      with the length.

    The policy ratio and its clip stay between p and the policy that is being trained. Source: truncated importance
    sampling, Ionides, J. Comput. Graph. Stat. 17(2), 2008; between engine and trainer: Yao et al., "Your efficient RL
    framework secretly brings you off-policy RL training", 2025; a behaviour policy apart from the one that the ratio is
    clipped around: Hilton et al., arXiv 2110.00641. Degenerate: equal log-probabilities give weights of exactly 1.

    Metrics, over tokens or with ``sequence`` over responses: ``rollout_is_mean`` of the weights, ``rollout_is_capped``
    the share that the cap took effect on, ``rollout_is_max`` the largest ratio before it. Expects ``inputs.masked()``;
    raises ValueError where they have no ``engine_logprobs_RT``.
    """
    if inputs.engine_logprobs_RT is None:
        raise ValueError(f"rollout_is is {config.rollout_is} but engine_logprobs_RT is missing")
    log_ratio_RT = inputs.old_logprobs_RT - inputs.engine_logprobs_RT
    mode, count = "token-mean", denominators.tokens
    if config.rollout_is == "sequence":
        log_ratio_RT = log_ratio_RT.sum(axis=1, keepdim=True).expand_as(log_ratio_RT)
        mode, count = "seq-mean-token-mean", denominators.sequences
    ratio_RT = paddle.exp(paddle.clip(log_ratio_RT, max=MAX_LOG_RATIO))
    weights_RT = paddle.clip(ratio_RT, max=config.rollout_is_cap)
    is_capped_RT = (ratio_RT > config.rollout_is_cap).astype(ratio_RT.dtype)
    metrics = {
        "rollout_is_mean": aggregate(weights_RT, inputs.mask_RT, mode, count),
        "rollout_is_capped": aggregate(is_capped_RT, inputs.mask_RT, mode, count),
        "rollout_is_max": (ratio_RT * inputs.mask_RT).max() if ratio_RT.size else paddle.zeros([], ratio_RT.dtype),
    }
    return weights_RT, metrics
