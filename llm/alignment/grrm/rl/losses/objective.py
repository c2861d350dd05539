"""The whole objective: policy gradient, SFT term, KL and entropy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import paddle

from .aggregation import Denominators, aggregate, count_denominators
from .config import PolicyLossConfig
from .gspo import gspo
from .interface import LossInputs, LossOutput
from .kl import kl_penalty
from .sft import positive_advantage_nll
from .token_clip import token_clip

PolicyLoss = Callable[[LossInputs, PolicyLossConfig, Denominators], LossOutput]
POLICY_LOSSES: dict[str, PolicyLoss] = {"token_clip": token_clip, "gspo": gspo}


def policy_objective(
    inputs: LossInputs, config: PolicyLossConfig, denominators: Denominators | None = None
) -> LossOutput:
    """Return ``pg_loss_coeff * pg + sft_coeff * S + kl_loss_coeff * KL - entropy_coeff * H`` of one micro-batch.

    ``denominators`` are those of the whole optimizer step; the losses, gradients and metrics of its micro-batches then
    add up to those of the undivided batch. None means that this is the whole batch.

    Metrics: pg_loss, pg_clipfrac, pg_clipfrac_lower, ppo_kl (mean of old - new log-probability), ratio_mean, ratio_max;
    sft_loss with an SFT weight; kl and entropy (unweighted) wherever the inputs allow, whatever their weight.
    Degenerate: no tokens give 0 with zero gradient. Raises ValueError if a weighted term lacks its input.
    """
    if denominators is None:
        denominators = count_denominators(inputs.mask_BT.numpy(), inputs.advantages_BT.numpy())
    inputs = inputs.masked()
    policy = POLICY_LOSSES[config.policy_loss](inputs, config, denominators)
    loss = config.pg_loss_coeff * policy.loss
    metrics = {"pg_loss": policy.loss.detach(), **policy.metrics}
    for name, coeff, term in (
        ("sft_loss", config.sft_coeff, _sft_term(inputs, config, denominators)),
        ("kl", config.kl_loss_coeff, _kl_term(inputs, config, denominators)),
        ("entropy", -config.entropy_coeff, _entropy_term(inputs, config, denominators)),
    ):
        if term is not None:
            metrics[name] = term.detach()
            loss = loss + coeff * term if coeff else loss
    return LossOutput(loss, metrics)


def _sft_term(inputs: LossInputs, config: PolicyLossConfig, denominators: Denominators) -> paddle.Tensor | None:
    if not config.sft_coeff:
        return None
    mode = config.loss_agg_mode
    return positive_advantage_nll(
        inputs.logprobs_BT, inputs.advantages_BT, inputs.mask_BT, mode, denominators.of_sft(mode)
    )


def _kl_term(inputs: LossInputs, config: PolicyLossConfig, denominators: Denominators) -> paddle.Tensor | None:
    if inputs.ref_logprobs_BT is None:
        if config.kl_loss_coeff:
            raise ValueError(f"kl_loss_coeff is {config.kl_loss_coeff} but ref_logprobs_BT is missing")
        return None
    mode = config.loss_agg_mode
    with _graph_only_if(config.kl_loss_coeff):
        kl_BT = kl_penalty(inputs.logprobs_BT, inputs.ref_logprobs_BT, config.kl_type, config.clip_range_score)
        return aggregate(kl_BT, inputs.mask_BT, mode, denominators.of(mode))


def _entropy_term(inputs: LossInputs, config: PolicyLossConfig, denominators: Denominators) -> paddle.Tensor | None:
    if inputs.entropy_BT is None:
        if config.entropy_coeff:
            raise ValueError(f"entropy_coeff is {config.entropy_coeff} but entropy_BT is missing")
        return None
    mode = config.loss_agg_mode
    with _graph_only_if(config.entropy_coeff):
        return aggregate(inputs.entropy_BT, inputs.mask_BT, mode, denominators.of(mode))


def _graph_only_if(coeff: float) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if coeff else paddle.no_grad()
