"""Rolled groups without an engine, a judge or a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grrm.gqm.groups import Candidate, Group, Status, TranslationTask, Verdict
from grrm.rewards.failure_policy import FailurePolicy
from grrm.rewards.shaping import ShapingConfig, shape_rewards
from grrm.rl.rollout import RolledGroup

TASK = TranslationTask("zwei", "de", "en", "two")
LABEL = "two, as the file has it"


def rolled_group(
    position: int, lengths: Sequence[int], scores: Sequence[float | None] | None = None, name: str | None = None
) -> RolledGroup:
    """A group with responses of `lengths` tokens, judged when there are `scores` (None: the judge failed)."""
    tokens = [[100 * position + 10 * i + t for t in range(length)] for i, length in enumerate(lengths)]
    candidates = tuple(Candidate(str(i), f"r{i}", f"t{i}", length) for i, length in enumerate(lengths))
    rolled = RolledGroup(
        position=position,
        group=Group(name or f"0-{position}", TASK, candidates),
        prompt_text="say zwei",
        prompt_ids=[1, 2, 3],
        token_ids=tokens,
        engine_logprobs=[np.full(length, -0.5, dtype=np.float32) for length in lengths],
        finish_reasons=["stop"] * len(lengths),
        label=LABEL,
    )
    if scores is not None:
        statuses = tuple(Status.JUDGE_UNPARSABLE if score is None else Status.SCORED for score in scores)
        rolled.verdict = Verdict(statuses, tuple(scores))
        rolled.shaped = shape_rewards(rolled.group, rolled.verdict, ShapingConfig(), FailurePolicy())
    return rolled
