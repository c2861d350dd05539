"""The supervised term on responses better than their group."""

from __future__ import annotations

import paddle


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
