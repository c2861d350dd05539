"""Group relative policy optimisation."""

from __future__ import annotations

from grrm.algorithms.advantages.interface import (
    AdvantageInputs,
    FloatArray,
    advantage_rule,
    sequence_scores,
    spread_over_tokens,
)
from grrm.algorithms.advantages.moments import group_moments


@advantage_rule(divides_by="group_std", without_std="grpo_no_std")
def grpo(inputs: AdvantageInputs, epsilon: float = 1e-6) -> FloatArray:
    """Return GRPO advantages [R, T]: each response measured against its own group.

    ``A_i = (r_i - mean(r)) / (std(r) + epsilon)`` with the unbiased std; the same for all tokens of a response. Source:
    DeepSeekMath, arXiv 2402.03300, eq. 3 (outcome supervision).

    Degenerate: a group with one scored member, or with equal scores, carries no signal and gets 0.
    """
    moments = group_moments(sequence_scores(inputs), inputs.groups_R)
    return spread_over_tokens(moments.deviation_R / (moments.std_R + epsilon), inputs.mask_RT)


@advantage_rule()
def grpo_no_std(inputs: AdvantageInputs) -> FloatArray:
    """Return GRPO advantages [R, T] without division by the group's std (see :func:`grpo`)."""
    deviation_R = group_moments(sequence_scores(inputs), inputs.groups_R).deviation_R
    return spread_over_tokens(deviation_R, inputs.mask_RT)
