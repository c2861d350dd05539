"""Terms of the objective beside the policy loss, per token: KL divergence, and likelihood of what is better."""

from __future__ import annotations

from typing import get_args

import paddle

from grrm.config.keys.objective import KlType

KL_TYPES: tuple[str, ...] = get_args(KlType)
ALIASES = {"kl": "k1", "mse": "k2", "low_var_kl": "k3"}

MAX_LOG_RATIO = 20.0


def kl_penalty(
    logprobs_RT: paddle.Tensor, ref_logprobs_RT: paddle.Tensor, kind: str, clip_range: float = 10.0
) -> paddle.Tensor:
    """Return an estimate of KL(policy || reference) at each token [R, T], in nats.

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
