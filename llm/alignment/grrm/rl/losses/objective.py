"""The whole objective: policy gradient, SFT term, KL and entropy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import paddle

from grrm.algorithms.policy_losses import POLICY_LOSSES, LossInputs
from grrm.config.keys.objective import PolicyLossConfig
from grrm.rl.losses.aggregation import Denominators, LossOutput, aggregate, count_denominators, ratio_metrics
from grrm.rl.losses.rollout_correction import rollout_correction
from grrm.rl.losses.terms import kl_penalty, positive_advantage_nll


def policy_objective(
    inputs: LossInputs, config: PolicyLossConfig, denominators: Denominators | None = None
) -> LossOutput:
    """Return ``pg_loss_coeff * pg + sft_coeff * S + kl_loss_coeff * KL - entropy_coeff * H`` of one micro-batch.

    With ``rollout_is`` the policy loss pg, and it alone, is weighted token by token (``rollout_correction``).
    ``denominators`` are those of the whole optimizer step; the losses, gradients and metrics of its micro-batches then
    add up to those of the undivided batch. None means that this is the whole batch.

    Metrics: pg_loss, those of ``ratio_metrics`` and of ``rollout_correction``; sft_loss with an SFT weight; kl and
    entropy (unweighted) wherever the inputs allow, whatever their weight.
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
