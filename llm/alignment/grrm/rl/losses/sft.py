"""The supervised term on responses better than their group."""

from __future__ import annotations

import paddle

from .aggregation import aggregate


def positive_advantage_nll(
    logprobs_BT: paddle.Tensor,
    advantages_BT: paddle.Tensor,
    mask_BT: paddle.Tensor,
    mode: str,
    denominator: float | None = None,
) -> paddle.Tensor:
    """Return ``-agg(max(A, 0) * logp)`` over tokens with A > 0: advantage-weighted NLL, not clipped by any ratio.

    Averaged over positive tokens or sequences only; ``denominator`` is ``Denominators.of_sft(mode)``. Source: the GRRM
    recipe for translation policies (there with weight 0.1). Degenerate: no positive advantage gives 0.
    """
    weight_BT = paddle.clip(advantages_BT.detach(), min=0.0)
    positive_BT = mask_BT.astype(weight_BT.dtype) * (weight_BT > 0).astype(weight_BT.dtype)
    return -aggregate(weight_BT * logprobs_BT, positive_BT, mode, denominator)
