"""REINFORCE++ with a group baseline."""

from __future__ import annotations

from grrm.algorithms.advantages.interface import (
    AdvantageInputs,
    FloatArray,
    advantage_rule,
    sequence_scores,
    spread_over_tokens,
)
from grrm.algorithms.advantages.moments import group_moments, whiten
from grrm.rewards.failure_policy import FailureAction


@advantage_rule(divides_by="batch_std", single_candidate=FailureAction.MASK)
def reinforce_plus_plus_baseline(inputs: AdvantageInputs) -> FloatArray:
    """Return REINFORCE++-baseline advantages [R, T]: group mean as baseline, global std as scale.

    ``a_i = r_i - mean(r of the group)`` on every token of response i, then
    ``A = (a - mean(a)) / sqrt(var(a) + 1e-8)`` over all tokens of the global batch.
    Source: arXiv 2501.03262, the variant for more than one response per prompt.

    Degenerate: a group with one scored member has no baseline; it is left out of whitening and gets 0. Fewer than
    two tokens in all give 0.
    """
    moments = group_moments(sequence_scores(inputs), inputs.groups_R)
    compared_RT = inputs.valid_RT & (moments.size_R > 1)[:, None]
    return whiten(spread_over_tokens(moments.deviation_R, compared_RT), compared_RT)
