"""Rollout: all samples of each of this rank's prompts, as whole groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from grrm.data.dataset import PromptItem
from grrm.engine.api import Completion, Engine, SamplingParams
from grrm.gqm.groups import Candidate, Group, TranslationTask
from grrm.rl.records import Rolled, Scored

STREAMS_PER_BATCH = 1 << 24


@dataclass(frozen=True, slots=True)
class PromptBatch:
    """The prompts of generation batch `generation` that this process samples, and their `positions` in the batch.

    They are sampled with the weights of the trainer's `step`.
    """

    items: Sequence[PromptItem]
    positions: Sequence[int]
    generation: int
    step: int = 0


@dataclass(slots=True)
class RolloutWorker:
    """Generates `rollout_n` samples per prompt with an engine.

    `extract` turns a response's text into its translation, or answer (None when there is none). The random stream of a
    sample is keyed by the sampling seed, the generation batch, the prompt's position in it and the sample's number, so
    samples do not depend on the rank or batch that generates them.
    """

    engine: Engine
    decode: Callable[[Sequence[int]], str]
    extract: Callable[[str, TranslationTask], str | None]
    sampling: SamplingParams
    rollout_n: int

    def roll_out(self, batch: PromptBatch, on_group: Callable[[Rolled], None] | None = None) -> list[Rolled]:
        """Sample every prompt of the batch.

        `on_group` is called with each group as soon as its last sample is complete, while others are still being
        sampled. Waking the engine may be a collective, so a process without prompts must call this as well.
        """
        self.engine.wake()
        self.engine.update_weights(batch.step)
        groups = self.sample(batch, on_group)
        self.engine.sleep()
        return groups

    def sample(self, batch: PromptBatch, on_group: Callable[[Rolled], None] | None = None) -> list[Rolled]:
        """Like `roll_out`, for an engine that is awake and has the current weights.

        Not a collective, unless the engine's ranks sample together: then a process without prompts takes part too.
        """
        prompts = [item.prompt_ids for item in batch.items for _ in range(self.rollout_n)]
        streams = [
            batch.generation * STREAMS_PER_BATCH + position * self.rollout_n + sample
            for position in batch.positions
            for sample in range(self.rollout_n)
        ]
        ended: list[dict[int, Completion]] = [{} for _ in batch.items]
        groups: dict[int, Rolled] = {}

        def on_finished(request: int, completion: Completion) -> None:
            index, sample = divmod(request, self.rollout_n)
            ended[index][sample] = completion
            if len(ended[index]) == self.rollout_n:
                ordered = [ended[index][i] for i in range(self.rollout_n)]
                groups[index] = self.group(batch, index, ordered)
                if on_group is not None:
                    on_group(groups[index])

        if prompts or self.engine.is_collective:
            self.engine.generate(prompts, self.sampling, streams, on_finished)
        return [groups[index] for index in range(len(batch.items))]

    def group(self, batch: PromptBatch, index: int, completions: Sequence[Completion]) -> Rolled:
        """The group of prompt `index` of the batch from its samples."""
        item, position = batch.items[index], batch.positions[index]
        versions = [completion.weight_version for completion in completions if completion.weight_version is not None]
        candidates = []
        for sample, completion in enumerate(completions):
            response = self.decode(completion.token_ids)
            candidates.append(
                Candidate(str(sample), response, self.extract(response, item.task), n_tokens=len(completion.token_ids))
            )
        return Rolled(
            position=position,
            item=item,
            group=Group(f"{batch.generation}-{position}", item.task, tuple(candidates)),
            token_ids=[completion.token_ids for completion in completions],
            engine_logprobs=[np.asarray(completion.logprobs, dtype=np.float32) for completion in completions],
            finish_reasons=[completion.finish_reason for completion in completions],
            weight_versions=versions,
        )


def check_complete(groups: Sequence[Scored], n_prompts: int, rollout_n: int) -> list[Scored]:
    """The groups in canonical order (by position). Raises ValueError unless every group is present exactly once.

    An incomplete, lost or duplicate group would silently corrupt group-relative baselines.
    """
    ordered = sorted(groups, key=lambda scored: scored.rolled.position)
    positions = [scored.rolled.position for scored in ordered]
    if positions != list(range(n_prompts)):
        raise ValueError(f"expected groups 0 to {n_prompts - 1} once each, got positions {positions}")
    for rolled in (scored.rolled for scored in ordered):
        if len(rolled.group.candidates) != rollout_n or len(rolled.token_ids) != rollout_n:
            raise ValueError(
                f"group {rolled.group.group_id} has {len(rolled.token_ids)} members instead of {rollout_n}"
            )
    return ordered
