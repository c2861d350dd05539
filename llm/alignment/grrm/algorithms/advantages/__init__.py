"""Advantage rules: pure NumPy functions from judged responses to an advantage per token.

A rule sees the whole global batch in float64. For results that do not depend on how many ranks took part, the
caller gathers rows in one canonical order; the rules themselves are insensitive to row order and padding.

Importing a rule registers it in `ADVANTAGE_RULES`: one line here for each file.
"""

# ruff: noqa: F401

from grrm.algorithms.advantages.dr_grpo import dr_grpo
from grrm.algorithms.advantages.gae import gae
from grrm.algorithms.advantages.grpo import grpo, grpo_no_std
from grrm.algorithms.advantages.grpo_spans import grpo_spans, grpo_spans_no_std
from grrm.algorithms.advantages.interface import ADVANTAGE_RULES, AdvantageInputs
from grrm.algorithms.advantages.reinforce_plus_plus import reinforce_plus_plus
from grrm.algorithms.advantages.reinforce_plus_plus_baseline import reinforce_plus_plus_baseline
from grrm.algorithms.advantages.rloo import rloo

__all__ = ["ADVANTAGE_RULES", "AdvantageInputs"]
