"""Estimators of the KL divergence from the reference, per token."""

from __future__ import annotations

import paddle

from .config import KL_ALIASES, KL_TYPES

MAX_LOG_RATIO = 20.0


def kl_penalty(
    logprobs_BT: paddle.Tensor, ref_logprobs_BT: paddle.Tensor, kind: str, clip_range: float = 10.0
) -> paddle.Tensor:
    """Return an estimate of KL(policy || reference) at each token [B, T], in nats.

    With ``d = ref_logp - logp``: k1 is ``-d``; abs is ``|d|``; k2 is ``d^2 / 2``; k3 is ``exp(d) - d - 1`` clipped to
    plus or minus ``clip_range``. "kl", "mse" and "low_var_kl" are other names of k1, k2 and k3. A trailing "+" keeps
    the value but takes k2's gradient (straight-through), whose expectation is that of the true KL.
    Source: J. Schulman, "Approximating KL Divergence", 2020.

    Degenerate: equal distributions give 0 with zero gradient (k1's gradient is always 1, abs's is 0 there). Raises
    ValueError for an unknown kind.
    """
    if kind not in KL_TYPES:
        raise ValueError(f"unknown KL estimator {kind!r}")
    base = kind.removesuffix("+")
    base = KL_ALIASES.get(base, base)
    value_BT = _estimate(logprobs_BT, ref_logprobs_BT, base, clip_range)
    if not kind.endswith("+"):
        return value_BT
    gradient_BT = _estimate(logprobs_BT, ref_logprobs_BT, "k2", clip_range)
    return value_BT.detach() + (gradient_BT - gradient_BT.detach())


def _estimate(logprobs_BT: paddle.Tensor, ref_BT: paddle.Tensor, base: str, clip_range: float) -> paddle.Tensor:
    delta_BT = ref_BT - logprobs_BT
    if base == "k1":
        return -delta_BT
    if base == "abs":
        return paddle.abs(delta_BT)
    if base == "k2":
        return 0.5 * delta_BT * delta_BT
    # Beyond this bound the estimate is clipped anyway; it only keeps exp from overflowing.
    bound = max(MAX_LOG_RATIO, clip_range + 1)
    delta_BT = paddle.clip(delta_BT, -bound, bound)
    return paddle.clip(paddle.expm1(delta_BT) - delta_BT, -clip_range, clip_range)
