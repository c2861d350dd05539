"""REINFORCE with a leave-one-out baseline."""

from __future__ import annotations

import numpy as np

from grrm.algorithms.advantages.interface import (
    AdvantageInputs,
    FloatArray,
    advantage_rule,
    sequence_scores,
    spread_over_tokens,
)
from grrm.algorithms.advantages.moments import group_moments


@advantage_rule()
def rloo(inputs: AdvantageInputs) -> FloatArray:
    """Return RLOO advantages [R, T]: the baseline of a response is the mean of the *other* members of its group.

    ``A_i = r_i - mean_{j != i}(r_j) = n / (n - 1) * (r_i - mean(r))`` with n scored members.
    Source: Back to Basics, arXiv 2402.14740, eq. 8.

    Degenerate: a group with one scored member has no others and gets 0; equal scores give 0.
    """
    moments = group_moments(sequence_scores(inputs), inputs.groups_R)
    advantages_R = moments.deviation_R * moments.size_R / np.maximum(moments.size_R - 1, 1)
    return spread_over_tokens(advantages_R, inputs.mask_RT)
