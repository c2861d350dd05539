"""PPO's clipped loss, one ratio per token."""

from __future__ import annotations

import paddle

from .aggregation import Denominators
from .clipping import clipped_surrogate
from .config import PolicyLossConfig
from .interface import LossInputs, LossOutput


def token_clip(inputs: LossInputs, config: PolicyLossConfig, denominators: Denominators) -> LossOutput:
    """Return the clipped surrogate with ``r_t = exp(logp_t - old_logp_t)``, aggregated by ``loss_agg_mode``.

    ``log r`` is clamped to plus or minus ``log_ratio_clamp`` first, as verl does (PaddleNLP: None). Source: PPO, arXiv
    1707.06347. Expects ``inputs.masked()``. Degenerate: no tokens give 0.
    """
    log_ratio_BT = inputs.logprobs_BT - inputs.old_logprobs_BT
    if config.log_ratio_clamp is not None:
        log_ratio_BT = paddle.clip(log_ratio_BT, -config.log_ratio_clamp, config.log_ratio_clamp)
    return clipped_surrogate(paddle.exp(log_ratio_BT), inputs, config, config.loss_agg_mode, denominators)
