"""Groups without an engine, a judge or a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from grrm.data.dataset import PromptItem
from grrm.engine.api import Engine
from grrm.gqm.groups import Candidate, Group, Status, TranslationTask, Verdict
from grrm.rewards.failure_policy import FailurePolicy
from grrm.rewards.shaping import ShapedRewards, ShapingConfig, shape_rewards
from grrm.rl.records import Judged, ModelOutputs, Rolled, Scored

TASK = TranslationTask("zwei", "de", "en", "two")
LABEL = "two, as the file has it"


class IdleEngine(Engine):
    """An engine that is asked for nothing."""

    def _generate(self, requests, on_finished):
        raise AssertionError("nothing was to be generated")


def rolled_group(position: int, lengths: Sequence[int], name: str | None = None, group: Group | None = None) -> Rolled:
    """A group with responses of `lengths` tokens; their texts are those of `group`, if one is given."""
    candidates = tuple(Candidate(str(i), f"r{i}", f"t{i}", length) for i, length in enumerate(lengths))
    return Rolled(
        position=position,
        item=PromptItem(position, [1, 2, 3], "say zwei", TASK, LABEL),
        group=group or Group(name or f"0-{position}", TASK, candidates),
        token_ids=[[100 * position + 10 * i + t for t in range(length)] for i, length in enumerate(lengths)],
        engine_logprobs=[np.full(length, -0.5, dtype=np.float32) for length in lengths],
        finish_reasons=["stop"] * len(lengths),
    )


def scored_group(
    position: int, lengths: Sequence[int], scores: Sequence[float | None], outputs: ModelOutputs | None = None, **notes
) -> Scored:
    """A judged group (None: the judge failed); `notes` are further fields of the verdict."""
    rolled = rolled_group(position, lengths)
    statuses = tuple(Status.JUDGE_UNPARSABLE if score is None else Status.SCORED for score in scores)
    verdict = Verdict(statuses, tuple(scores), **notes)
    shaped = shape_rewards(rolled.group, verdict, ShapingConfig(), FailurePolicy())
    return Scored(Judged(rolled, verdict), shaped, outputs or ModelOutputs())


class Watched:
    """A rewarder that has `work` look at the groups, and gives every sample a reward of 0."""

    def __init__(self, work: Callable[[Sequence[Rolled]], object]) -> None:
        self.work = work

    def judge_groups(self, groups: Sequence[Rolled]) -> list[Judged]:
        self.work(groups)
        return [Judged(rolled) for rolled in groups]

    def shape(self, judged: Judged) -> ShapedRewards:
        zeros = (0.0,) * len(judged.rolled.token_ids)
        return ShapedRewards(zeros, zeros, (Status.SCORED,) * len(zeros))
