"""How far the trainer's log-probabilities are from those the rollout recorded."""

from __future__ import annotations

import paddle

from .aggregation import aggregate
from .interface import keep
from .kl import kl_penalty


@paddle.no_grad()
def logprob_gap(
    trainer_logprobs_BT: paddle.Tensor, rollout_logprobs_BT: paddle.Tensor, mask_BT: paddle.Tensor
) -> dict[str, paddle.Tensor]:
    """Return gap_mean and gap_max of ``|trainer - rollout|`` and gap_kl, the k3 KL(rollout || trainer), all in nats.

    Both sides must stand for the same weights; anything above rounding then means that sampler and trainer disagree
    (temperature, template, precision), and importance ratios cannot be trusted. Degenerate: no tokens give 0.
    """
    trainer_BT, rollout_BT = keep(trainer_logprobs_BT, mask_BT), keep(rollout_logprobs_BT, mask_BT)
    gap_BT = paddle.abs(trainer_BT - rollout_BT)
    return {
        "gap_mean": aggregate(gap_BT, mask_BT, "token-mean"),
        "gap_max": gap_BT.max(),
        "gap_kl": aggregate(kl_penalty(rollout_BT, trainer_BT, "k3"), mask_BT, "token-mean"),
    }
