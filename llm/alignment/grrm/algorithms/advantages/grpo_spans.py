"""GRPO with credit for error spans."""

from __future__ import annotations

import numpy as np

from grrm.algorithms.advantages.grpo import grpo, grpo_no_std
from grrm.algorithms.advantages.interface import AdvantageInputs, FloatArray, advantage_rule


@advantage_rule(divides_by="group_std", without_std="grpo_spans_no_std", needs_spans=True)
def grpo_spans(inputs: AdvantageInputs) -> FloatArray:
    """Return GRPO advantages [R, T], lowered on the tokens of error spans.

    ``A_it = A_i - span_weight * s_it``, where A_i is that of :func:`grpo` and s_it the weight of the most severe error
    span that token t overlaps, 0 outside of spans. Source of the severities as rewards of tokens: Fine-Grained Reward
    Optimization for Machine Translation using Error Severity Mappings, arXiv 2411.05986; the sum with the advantage of
    the response takes the place of the paper's critic.

    Degenerate: without spans, or with ``span_weight`` 0, these are exactly the advantages of :func:`grpo`. In a group
    of equal scores the spans are the only signal. A response without a score gets 0.
    """
    return _with_credit(grpo(inputs), inputs)


@advantage_rule(needs_spans=True)
def grpo_spans_no_std(inputs: AdvantageInputs) -> FloatArray:
    """Return the advantages [R, T] of :func:`grpo_spans` without division by the group's std."""
    return _with_credit(grpo_no_std(inputs), inputs)


def _with_credit(advantages_RT: FloatArray, inputs: AdvantageInputs) -> FloatArray:
    if inputs.severities_RT is None:
        return advantages_RT
    return advantages_RT - inputs.span_weight * np.where(inputs.valid_RT, inputs.severities_RT, 0.0)
