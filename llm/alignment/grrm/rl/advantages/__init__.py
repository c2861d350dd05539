"""Advantage rules: pure numpy functions from judged responses to an advantage per token.

A rule sees the whole global batch in float64. For results that do not depend on how many ranks took part, the
caller gathers rows in one canonical order; the rules themselves are insensitive to row order and padding.
"""

from grrm.rl.advantages.dr_grpo import dr_grpo
from grrm.rl.advantages.grpo import grpo, grpo_no_std
from grrm.rl.advantages.interface import AdvantageInputs, AdvantageRule
from grrm.rl.advantages.moments import RunningMoments, batch_advantages, normalize_advantages
from grrm.rl.advantages.reinforce_plus_plus import reinforce_plus_plus
from grrm.rl.advantages.reinforce_plus_plus_baseline import reinforce_plus_plus_baseline
from grrm.rl.advantages.rloo import rloo

ADVANTAGE_RULES: dict[str, AdvantageRule] = {
    "grpo": grpo,
    "grpo_no_std": grpo_no_std,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "reinforce_plus_plus": reinforce_plus_plus,
    "reinforce_plus_plus_baseline": reinforce_plus_plus_baseline,
}

__all__ = [
    "ADVANTAGE_RULES",
    "AdvantageInputs",
    "AdvantageRule",
    "RunningMoments",
    "batch_advantages",
    "dr_grpo",
    "grpo",
    "grpo_no_std",
    "normalize_advantages",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "rloo",
]
