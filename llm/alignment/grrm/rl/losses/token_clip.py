"""PPO's clipped loss, one ratio per token."""

from __future__ import annotations

import paddle

from .clipping import clipped_surrogate
from .config import PolicyLossConfig
from .interface import LossInputs, TokenLoss


def token_clip(inputs: LossInputs, config: PolicyLossConfig) -> TokenLoss:
    """Return the clipped surrogate with ``r_t = exp(logp_t - old_logp_t)``.

    ``log r`` is clamped to plus or minus ``log_ratio_clamp`` first, as verl does (PaddleNLP: None). Source: PPO, arXiv
    1707.06347. Expects ``inputs.masked()``. Degenerate: no tokens give 0.
    """
    log_ratio_RT = inputs.logprobs_RT - inputs.old_logprobs_RT
    if config.log_ratio_clamp is not None:
        log_ratio_RT = paddle.clip(log_ratio_RT, -config.log_ratio_clamp, config.log_ratio_clamp)
    return clipped_surrogate(paddle.exp(log_ratio_RT), inputs, config)
