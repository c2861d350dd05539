"""Dr. GRPO: GRPO without its two biases."""

from __future__ import annotations

from grrm.algorithms.advantages.interface import (
    AdvantageInputs,
    FloatArray,
    advantage_rule,
    sequence_scores,
    spread_over_tokens,
)
from grrm.algorithms.advantages.moments import group_moments


@advantage_rule()
def dr_grpo(inputs: AdvantageInputs) -> FloatArray:
    """Return Dr. GRPO advantages [R, T]: ``A_i = r_i - mean(r)`` over the group.

    Source: Understanding R1-Zero-Like Training, arXiv 2503.20783, section 3.2. The std is left out because it weights
    prompts by how hard they are. The paper's other half, a loss not divided by the response length, is the loss
    aggregation ``seq-mean-token-sum-norm``, chosen with the policy loss and not here.

    Degenerate: a group with one scored member, or with equal scores, gets 0.
    """
    deviation_R = group_moments(sequence_scores(inputs), inputs.groups_R).deviation_R
    return spread_over_tokens(deviation_R, inputs.mask_RT)
