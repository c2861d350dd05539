"""The trainer's data loader: indices that say which micro-batch of which update comes next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepIndex:
    """Micro-batch `micro` of update `update` of rollout `rollout`, all from 0."""

    rollout: int
    update: int
    micro: int


@dataclass(frozen=True, slots=True)
class StepIndexLoader:
    """Endless step indices in training order.

    PaddleNLP's Trainer skips finished micro-batches of a resumed run by drawing and dropping them; indices cost
    nothing, and the rollouts they name are only made when they are prepared for training.
    """

    updates_per_rollout: int
    micro_batches_per_update: int

    def __iter__(self) -> Iterator[StepIndex]:
        rollout = 0
        while True:
            for update in range(self.updates_per_rollout):
                for micro in range(self.micro_batches_per_update):
                    yield StepIndex(rollout, update, micro)
            rollout += 1
