"""Group relative policy optimisation."""

from __future__ import annotations

from grrm.rl.advantages.interface import AdvantageInputs, FloatArray, sequence_scores, spread_over_tokens
from grrm.rl.advantages.moments import group_moments


def grpo(inputs: AdvantageInputs, normalize_by_std: bool = True, epsilon: float = 1e-6) -> FloatArray:
    """Return GRPO advantages [R, T]: each response measured against its own group.

    ``A_i = (r_i - mean(r)) / (std(r) + epsilon)`` with the unbiased std, or ``r_i - mean(r)`` when
    ``normalize_by_std`` is off; the same for all tokens of a response. Source: DeepSeekMath, arXiv 2402.03300, eq. 3
    (outcome supervision).

    Degenerate: a group with one scored member, or with equal scores, carries no signal and gets 0.
    """
    moments = group_moments(sequence_scores(inputs), inputs.groups_R)
    advantages_R = moments.deviation_R
    if normalize_by_std:
        advantages_R = advantages_R / (moments.std_R + epsilon)
    return spread_over_tokens(advantages_R, inputs.mask_RT)


def grpo_no_std(inputs: AdvantageInputs) -> FloatArray:
    """Return GRPO advantages [R, T] without division by the group's std (see :func:`grpo`)."""
    return grpo(inputs, normalize_by_std=False)
