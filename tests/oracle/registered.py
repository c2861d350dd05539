"""Advantage rules and policy losses by name: the oracle's own formulas, else the registered functions in float64.

A registered function without a formula of its own here is still checked for all that surrounds it: masks, temperature,
the policy of the ratio, denominators and the flow of gradients are the oracle's.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from autograd.extend import defvjp, primitive
from autograd.tracer import getval
from oracle.advantages import RULES, Rollout, Rule
from oracle.objective import BY_SEQUENCE, POLICY_LOSSES, Inputs, PolicyLoss


def advantage_rule(name: str) -> Rule:
    """The rule called `name`."""
    return RULES.get(name) or partial(_registered_rule, name)


def policy_loss(name: str) -> PolicyLoss:
    """The policy loss called `name`."""
    return POLICY_LOSSES.get(name) or partial(_registered_loss, name)


def aggregation(name: str, mode: str) -> str:
    """How the policy loss called `name` is aggregated where `loss_agg_mode` is `mode`."""
    if name in POLICY_LOSSES:
        return "seq-mean-token-mean" if name in BY_SEQUENCE else mode
    from grrm.algorithms.policy_losses import POLICY_LOSSES as REGISTERED

    return REGISTERED[name].aggregation or mode


def _registered_rule(name: str, rollout: Rollout) -> list[np.ndarray]:
    from grrm.algorithms.advantages import ADVANTAGE_RULES, AdvantageInputs

    width = max(rollout.lengths)

    def stacked(rows: list[np.ndarray]) -> np.ndarray:
        return np.stack([np.pad(row, (0, width - len(row))) for row in rows])

    inputs = AdvantageInputs(
        rewards_R=np.asarray(rollout.rewards),
        groups_R=np.asarray(rollout.groups),
        mask_RT=np.arange(width)[None] < np.asarray(rollout.lengths)[:, None],
        kl_RT=stacked(rollout.kl),
        severities_RT=stacked(rollout.severities) if rollout.severities else None,
        **{name: rollout.arguments[name] for name in ("kl_coeff", "gamma", "clip_range_score", "span_weight")},
    )
    values_RT = ADVANTAGE_RULES[name](inputs)
    return [row[:n] for row, n in zip(values_RT, rollout.lengths, strict=True)]


def _registered_loss(name: str, logprobs: Any, inputs: Inputs) -> tuple[Any, Any, dict[str, Any]]:
    import paddle

    from grrm.algorithms.policy_losses import POLICY_LOSSES as REGISTERED
    from grrm.algorithms.policy_losses import LossInputs

    config = SimpleNamespace(**inputs.arguments)
    others = {"old_logprobs_RT": inputs.old, "advantages_RT": inputs.advantages, "engine_logprobs_RT": inputs.engine}
    constants = {name: paddle.to_tensor(value) for name, value in others.items()}

    def evaluated(values: np.ndarray) -> tuple[Any, Any]:
        tensor = paddle.to_tensor(values, stop_gradient=False)
        given = LossInputs(logprobs_RT=tensor, mask_RT=paddle.to_tensor(inputs.mask), **constants)
        return tensor, REGISTERED[name](given.masked(), config)

    @primitive
    def loss(values: np.ndarray) -> np.ndarray:
        return evaluated(values)[1].loss_RT.numpy()

    def backward(_: np.ndarray, values: np.ndarray) -> Any:
        tensor, token_loss = evaluated(values)
        return lambda g: paddle.grad([token_loss.loss_RT], [tensor], [paddle.to_tensor(g)])[0].numpy()

    defvjp(loss, backward)
    token_loss = evaluated(getval(logprobs))[1]
    clipped = {name: where_RT.numpy() for name, where_RT in token_loss.clipped.items()}
    return loss(logprobs), token_loss.ratio_RT.numpy(), clipped
