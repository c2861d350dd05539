"""Group sequence policy optimisation: one ratio per sequence."""

from __future__ import annotations

import paddle

from .aggregation import Denominators
from .clipping import clipped_surrogate
from .config import PolicyLossConfig
from .interface import LossInputs, LossOutput

MAX_LOG_RATIO = 10.0


def gspo(inputs: LossInputs, config: PolicyLossConfig, denominators: Denominators) -> LossOutput:
    """Return the clipped surrogate with the length-normalised ratio of the whole sequence.

    ``s_i = exp(mean_t(logp_t - old_logp_t))``; each token carries ``s_i`` in value and its own log-probability in
    gradient (``log r_t = logp_t - sg(logp_t) + sg(log s_i)``, at most 10), and the aggregation is always
    seq-mean-token-mean. Source: GSPO, arXiv 2507.18071, eq. 7 and GSPO-token, eq. 14.

    Expects ``inputs.masked()``. Degenerate: a row without tokens counts for nothing.
    """
    lengths_B1 = paddle.clip(inputs.mask_BT.sum(axis=1, keepdim=True), min=1.0)
    log_ratio_BT = inputs.logprobs_BT - inputs.old_logprobs_BT
    log_sequence_ratio_B1 = (log_ratio_BT.sum(axis=1, keepdim=True) / lengths_B1).detach()
    own_gradient_BT = inputs.logprobs_BT - inputs.logprobs_BT.detach()
    ratio_BT = paddle.exp(paddle.clip(own_gradient_BT + log_sequence_ratio_B1, max=MAX_LOG_RATIO))
    return clipped_surrogate(ratio_BT, inputs, config, "seq-mean-token-mean", denominators)
