"""Choice of the prompts of a rollout, computed from its number alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from grrm.errors import UserError


@dataclass(frozen=True, slots=True)
class PromptSampler:
    """An endless, reproducible order over `n_items` prompts, epoch after epoch.

    There is no state: rollout number, batch size and seed give the indices, so resuming needs only the
    rollout number, and the number of ranks plays no part (each rank takes its slice of the same list).

    `drop_last=True` skips what is left of an epoch once no whole batch fits (a different remainder each
    epoch when shuffled). `drop_last=False` skips nothing: the batch that crosses the end of an epoch is
    filled from the next one, so an item may then occur twice in that batch.
    """

    n_items: int
    drop_last: bool = True

    def __post_init__(self) -> None:
        if self.n_items < 1:
            raise UserError("there are no prompts to sample from; give a data set with at least one usable prompt")

    def batches_per_epoch(self, n_prompts: int) -> int:
        """Whole batches in one pass over the data. Raises UserError when not even one fits and `drop_last` is on."""
        if n_prompts < 1:
            raise ValueError(f"n_prompts must be at least 1, not {n_prompts}")
        if self.drop_last and n_prompts > self.n_items:
            raise UserError(
                f"a rollout needs {n_prompts} prompts but the data set has {self.n_items}; "
                "lower global_batch_size or set dataloader_drop_last to false"
            )
        return self.n_items // n_prompts

    def batch_for(self, rollout_index: int, n_prompts: int, seed: int, shuffle: bool = True) -> list[int]:
        """The `n_prompts` item indices of rollout `rollout_index` (from 0), in order."""
        if rollout_index < 0:
            raise ValueError(f"rollout_index must not be negative, not {rollout_index}")
        batches = self.batches_per_epoch(n_prompts)
        if self.drop_last:
            epoch, batch = divmod(rollout_index, batches)
            first = epoch * self.n_items + batch * n_prompts
        else:
            first = rollout_index * n_prompts
        return [self._item_at(position, seed, shuffle) for position in range(first, first + n_prompts)]

    def _item_at(self, position: int, seed: int, shuffle: bool) -> int:
        epoch, offset = divmod(position, self.n_items)
        return int(_permutation(self.n_items, seed, epoch)[offset]) if shuffle else offset


@lru_cache(maxsize=4)
def _permutation(n_items: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng([seed, epoch]).permutation(n_items)
