"""The RL objective of one optimizer step over all of its responses at once, with its logged terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import autograd.numpy as np
from autograd.tracer import getval


@dataclass(frozen=True)
class Inputs:
    """Arrays [R, T] of one optimizer step; `mask` leaves out responses without a reward."""

    old: Any
    engine: Any
    reference: Any
    advantages: Any
    mask: Any
    width: int
    arguments: dict[str, Any]


@dataclass
class Terms:
    """The loss, its logged terms, and for each the mean size of what it sums up."""

    loss: Any
    metrics: dict[str, Any]
    scales: dict[str, float]


PolicyLoss = Callable[[Any, Inputs], "tuple[Any, Any, dict[str, Any]]"]  # loss and ratio per token, what was clipped


def objective(logprobs: Any, entropy: Any, inputs: Inputs, policy_loss: PolicyLoss, policy_mode: str) -> Terms:
    """policy loss + SFT term + KL - entropy, each aggregated over its own tokens."""
    arguments, mask = inputs.arguments, inputs.mask
    mode = arguments["loss_agg_mode"]
    loss_RT, ratio_RT, clipped = policy_loss(logprobs, inputs)
    metrics: dict[str, Any] = {name: _mean(where, mask) for name, where in clipped.items()}
    metrics |= {"ppo_kl": _mean(inputs.old - logprobs, mask), "ratio_mean": _mean(ratio_RT, mask)}
    metrics["ratio_max"] = np.max(np.where(mask, ratio_RT, 0.0))
    if arguments["rollout_is"] != "none":
        weights_RT, of_weights = importance_weights(inputs)
        loss_RT = loss_RT * weights_RT
        metrics |= of_weights
    positive = mask & (inputs.advantages > 0)
    sft_RT = np.where(positive, -inputs.advantages * logprobs, 0.0)
    kl_RT = kl_estimate(logprobs, inputs.reference, arguments["kl_type"], arguments["clip_range_score"])
    terms = [
        ("pg_loss", arguments["pg_loss_coeff"], loss_RT, mask, policy_mode),
        ("sft_loss", arguments["sft_coeff"], sft_RT, positive, mode),
        ("kl", arguments["kl_loss_coeff"], kl_RT, mask, mode),
        ("entropy", -arguments["entropy_coeff"], entropy, mask, mode),
    ]
    loss, scales = 0.0, {"ppo_kl": float(_mean(np.abs(getval(logprobs - inputs.old)), mask)) or 1e-3}
    for name, coefficient, values, where, how in terms:
        metrics[name] = aggregate(values, where, how, inputs.width)
        scales[name] = float(getval(aggregate(np.abs(getval(values)), where, how, inputs.width)))
        loss = loss + coefficient * metrics[name]
        if name in ("kl", "entropy") and "token-sum" in how:
            metrics[name] = _mean(values, where)  # logged per token
    scales["loss"] = sum(abs(coefficient) * scales[name] for name, coefficient, *_ in terms)
    return Terms(loss, metrics, scales)


def aggregate(values: Any, mask: Any, mode: str, width: int) -> Any:
    """One number of the tokens under the mask."""
    values, mask = np.where(mask, values, 0.0), mask.astype(float)
    lengths = mask.sum(axis=1)
    rows = max((lengths > 0).sum(), 1)
    if mode == "token-mean":
        return np.sum(values) / max(lengths.sum(), 1)
    if mode == "seq-mean-token-sum":
        return np.sum(values) / rows
    if mode == "seq-mean-token-mean":
        return np.sum(np.sum(values, axis=1) / np.maximum(lengths, 1)) / rows
    assert mode == "seq-mean-token-sum-norm", mode
    return np.sum(values) / width / rows


def kl_estimate(logprobs: Any, reference: Any, kind: str, bound: float) -> Any:
    """k1, k2 or k3 of Schulman's note; with a plus the value is that, the gradient is that of k2."""
    if kind.endswith("+"):
        value = getval(kl_estimate(getval(logprobs), reference, kind[:-1], bound))
        carrier = (logprobs - reference) ** 2 / 2
        return value + carrier - getval(carrier)
    delta = reference - logprobs
    if kind == "k1":
        return -delta
    if kind == "abs":
        return np.abs(delta)
    if kind == "k2":
        return delta**2 / 2
    assert kind == "k3", kind
    return np.clip(np.exp(delta) - delta - 1, -bound, bound)


def importance_weights(inputs: Inputs) -> tuple[Any, dict[str, float]]:
    """p / q per token or per response within two bounds, p being the policy that the update starts from."""
    arguments, mask = inputs.arguments, inputs.mask
    log_ratio = np.where(mask, inputs.old - inputs.engine, 0.0)
    rows = mask
    if arguments["rollout_is"] == "sequence":
        rows = mask.any(axis=1, keepdims=True)
        log_ratio = log_ratio.sum(axis=1, keepdims=True)
    ratio, low, high = np.exp(log_ratio), arguments["rollout_is_floor"], arguments["rollout_is_cap"]
    weights = np.maximum(np.minimum(ratio, high), low)
    if arguments["rollout_is_mode"] == "mask":
        weights = np.where(weights == ratio, ratio, 0.0)
    metrics = {
        "rollout_is_mean": _mean(weights, rows),
        "rollout_is_capped": _mean(ratio > high, rows),
        "rollout_is_floored": _mean(ratio < low, rows),
        "rollout_is_max": np.max(np.where(rows, ratio, 0.0)),
    }
    return weights * np.ones(mask.shape), metrics


def token_clip(logprobs: Any, inputs: Inputs) -> tuple[Any, Any, dict[str, Any]]:
    """PPO's surrogate with one ratio per token."""
    return _clipped(np.exp(logprobs - inputs.old), inputs, inputs.arguments["dual_clip_ratio"])


def gspo(logprobs: Any, inputs: Inputs) -> tuple[Any, Any, dict[str, Any]]:
    """One ratio per response, the geometric mean of those of its tokens; each has the gradient of its own."""
    lengths = np.maximum(inputs.mask.sum(axis=1, keepdims=True), 1)
    constant = getval(logprobs)
    log_ratio = np.sum(np.where(inputs.mask, constant - inputs.old, 0.0), axis=1, keepdims=True) / lengths
    return _clipped(np.exp(log_ratio + logprobs - constant), inputs)


def cispo(logprobs: Any, inputs: Inputs) -> tuple[Any, Any, dict[str, Any]]:
    """The likelihood under a clipped weight that has no gradient."""
    ratio = np.exp(getval(logprobs) - inputs.old)
    weight = np.minimum(ratio, 1 + _bounds(inputs)[1])
    return -weight * inputs.advantages * logprobs, ratio, {"pg_clipfrac": weight < ratio}


def gmpo(logprobs: Any, inputs: Inputs) -> tuple[Any, Any, dict[str, Any]]:
    """The geometric mean of ratios that are bounded on the side where the surrogate would grow."""
    low, high = _bounds(inputs)
    sign = np.sign(inputs.advantages)
    log_ratio = np.where(inputs.mask, logprobs - inputs.old, 0.0)
    beyond = (getval(log_ratio) * sign > np.where(sign > 0, high, low)) & (sign != 0)
    held = np.where(beyond, np.where(sign > 0, high, -low), log_ratio)
    lengths = np.maximum(inputs.mask.sum(axis=1, keepdims=True), 1)
    ratio = np.exp(np.sum(held, axis=1, keepdims=True) / lengths) * np.ones(inputs.mask.shape)
    return -inputs.advantages * ratio, ratio, {"pg_clipfrac": beyond}


def sapo(logprobs: Any, inputs: Inputs) -> tuple[Any, Any, dict[str, Any]]:
    """A sigmoid of the ratio in its place."""
    arguments, ratio = inputs.arguments, np.exp(logprobs - inputs.old)
    tau = np.where(inputs.advantages > 0, arguments["sapo_tau_pos"], arguments["sapo_tau_neg"])
    return -inputs.advantages * 4 / tau / (1 + np.exp(-tau * (ratio - 1))), ratio, {}


def _bounds(inputs: Inputs) -> tuple[float, float]:
    low, high = (float(inputs.arguments[f"clip_range_ratio_{end}"]) for end in ("low", "high"))
    return low, high


def _clipped(ratio: Any, inputs: Inputs, limit: float | None = None) -> tuple[Any, Any, dict[str, Any]]:
    advantages, (low, high) = inputs.advantages, _bounds(inputs)
    free = -advantages * ratio
    held = -advantages * np.clip(ratio, 1 - low, 1 + high)
    loss = np.maximum(free, held)
    clipped = {"pg_clipfrac": getval(held) > getval(free)}
    if limit is not None:
        bound = -advantages * limit
        clipped["pg_clipfrac_lower"] = (advantages < 0) & (getval(loss) > bound)
        loss = np.where(advantages < 0, np.minimum(loss, bound), loss)
    return loss, ratio, clipped


def _mean(values: Any, mask: Any) -> Any:
    return np.sum(np.where(mask, values, 0.0)) / mask.sum()


POLICY_LOSSES: dict[str, PolicyLoss] = {
    "token_clip": token_clip,
    "gspo": gspo,
    "cispo": cispo,
    "gmpo": gmpo,
    "sapo": sapo,
}
BY_SEQUENCE = ("gspo", "gmpo", "sapo")  # whose papers take the mean of a response's tokens first
