"""The whole objective: policy gradient, SFT term, KL and entropy, and weights between engine and policy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import paddle

from grrm.algorithms.policy_losses import POLICY_LOSSES, LossInputs
from grrm.algorithms.policy_losses.interface import MAX_LOG_RATIO
from grrm.config.keys.objective import KlType, PolicyLossConfig
from grrm.rl.losses.aggregation import Denominators, LossOutput, aggregate, count_denominators, ratio_metrics


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


ALIASES = {"kl": "k1", "mse": "k2", "low_var_kl": "k3"}
PER_TOKEN = ("kl", "entropy")  # logged as means over tokens, never as sums


def kl_penalty(
    logprobs_RT: paddle.Tensor, ref_logprobs_RT: paddle.Tensor, kind: KlType, clip_range: float = 10.0
) -> paddle.Tensor:
    """Return an estimate of KL(policy || reference) at each token [R, T], in nats.

    With ``d = ref_logp - logp``: k1 is ``-d``; abs is ``|d|``; k2 is ``d^2 / 2``; k3 is ``exp(d) - d - 1`` clipped to
    plus or minus ``clip_range``. "kl", "mse" and "low_var_kl" are other names of k1, k2 and k3. A trailing "+" keeps
    the value but takes k2's gradient (straight-through), whose expectation is that of the true KL.
    Source: J. Schulman, "Approximating KL Divergence", 2020.

    Degenerate: equal distributions give 0 with zero gradient (k1's gradient is always 1, abs's is 0 there).
    """
    base = kind.removesuffix("+")
    base = ALIASES.get(base, base)
    value_RT = _estimate(logprobs_RT, ref_logprobs_RT, base, clip_range)
    if not kind.endswith("+"):
        return value_RT
    gradient_RT = _estimate(logprobs_RT, ref_logprobs_RT, "k2", clip_range)
    return value_RT.detach() + (gradient_RT - gradient_RT.detach())


def _estimate(logprobs_RT: paddle.Tensor, ref_RT: paddle.Tensor, base: str, clip_range: float) -> paddle.Tensor:
    delta_RT = ref_RT - logprobs_RT
    if base == "k1":
        return -delta_RT
    if base == "abs":
        return paddle.abs(delta_RT)
    if base == "k2":
        return 0.5 * delta_RT * delta_RT
    # Beyond this bound the estimate is clipped anyway; it only keeps exp from overflowing.
    bound = max(MAX_LOG_RATIO, clip_range + 1)
    delta_RT = paddle.clip(delta_RT, -bound, bound)
    return paddle.clip(paddle.expm1(delta_RT) - delta_RT, -clip_range, clip_range)


def positive_advantage_nll(
    logprobs_RT: paddle.Tensor, advantages_RT: paddle.Tensor, mask_RT: paddle.Tensor
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Return ``-max(A, 0) * logp`` per token, not clipped by any ratio, and the mask of tokens with A > 0.

    It is averaged over positive tokens or sequences only (``Denominators.of_sft``). Source: the GRRM recipe for
    translation policies (there with weight 0.1). Degenerate: no positive advantage gives 0.
    """
    weight_RT = paddle.clip(advantages_RT.detach(), min=0.0)
    positive_RT = mask_RT.astype(weight_RT.dtype) * (weight_RT > 0).astype(weight_RT.dtype)
    return -(weight_RT * logprobs_RT), positive_RT


def policy_objective(
    inputs: LossInputs, config: PolicyLossConfig, denominators: Denominators | None = None
) -> LossOutput:
    """Return ``pg_loss_coeff * pg + sft_coeff * S + kl_loss_coeff * KL - entropy_coeff * H`` of one micro-batch.

    With ``rollout_is`` the policy loss pg, and it alone, is weighted token by token (``rollout_correction``).
    ``denominators`` are those of the whole optimizer step; the losses, gradients and metrics of its micro-batches then
    add up to those of the undivided batch. None means that this is the whole batch.

    Metrics: pg_loss, those of ``ratio_metrics`` and of ``rollout_correction``; sft_loss with an SFT weight; kl and
    entropy wherever the inputs allow, whatever their weight: in nats per token, also where the loss sums over tokens.
    Degenerate: no tokens give 0 with zero gradient. Raises ValueError if a weighted term lacks its input.
    """
    if denominators is None:
        denominators = count_denominators(inputs.mask_RT.numpy(), inputs.advantages_RT.numpy())
    inputs = inputs.masked()
    policy_loss = POLICY_LOSSES[config.policy_loss]
    policy = policy_loss(inputs, config)
    metrics = ratio_metrics(policy, inputs, denominators)
    if config.rollout_is != "none":
        weights_RT, is_metrics = rollout_correction(inputs, config, denominators)
        policy = replace(policy, loss_RT=policy.loss_RT * weights_RT)
        metrics.update(is_metrics)
    mode = policy_loss.aggregation or config.loss_agg_mode
    pg_loss = aggregate(policy.loss_RT, inputs.mask_RT, mode, denominators.of(mode))
    loss = config.pg_loss_coeff * pg_loss
    metrics["pg_loss"] = pg_loss.detach()
    for term in _terms(inputs, config, denominators):
        with _graph_only_if(term.coeff):
            value = aggregate(term.values_RT, term.mask_RT, config.loss_agg_mode, term.denominator)
        if term.name in PER_TOKEN and "token-sum" in config.loss_agg_mode:
            metrics[term.name] = aggregate(term.values_RT.detach(), term.mask_RT, "token-mean", denominators.tokens)
        else:
            metrics[term.name] = value.detach()
        loss = loss + term.coeff * value if term.coeff else loss
    return LossOutput(loss, metrics)


class _Term(NamedTuple):
    """One more term of the objective, per token."""

    name: str
    coeff: float
    values_RT: paddle.Tensor
    mask_RT: paddle.Tensor
    denominator: float


def _terms(inputs: LossInputs, config: PolicyLossConfig, denominators: Denominators) -> Iterator[_Term]:
    """The SFT term where it has a weight; KL and entropy wherever there is what they need."""
    mode, mask_RT = config.loss_agg_mode, inputs.mask_RT
    if config.sft_coeff:
        values_RT, positive_RT = positive_advantage_nll(inputs.logprobs_RT, inputs.advantages_RT, mask_RT)
        yield _Term("sft_loss", config.sft_coeff, values_RT, positive_RT, denominators.of_sft(mode))
    if inputs.ref_logprobs_RT is not None:
        with _graph_only_if(config.kl_loss_coeff):
            kl_RT = kl_penalty(inputs.logprobs_RT, inputs.ref_logprobs_RT, config.kl_type, config.clip_range_score)
        yield _Term("kl", config.kl_loss_coeff, kl_RT, mask_RT, denominators.of(mode))
    elif config.kl_loss_coeff:
        raise ValueError(f"kl_loss_coeff is {config.kl_loss_coeff} but ref_logprobs_RT is missing")
    if inputs.entropy_RT is not None:
        yield _Term("entropy", -config.entropy_coeff, inputs.entropy_RT, mask_RT, denominators.of(mode))
    elif config.entropy_coeff:
        raise ValueError(f"entropy_coeff is {config.entropy_coeff} but entropy_RT is missing")


def _graph_only_if(coeff: float) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if coeff else paddle.no_grad()
