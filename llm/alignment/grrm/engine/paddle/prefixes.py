"""Which prompts of a batch begin alike, so that what they share runs once (a trie, flattened)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

SHORTEST = 16  # tokens worth sharing: a pass takes as long for fewer rows of a product
DEEPEST = 3  # every level is a pass of its own: a header, a source, what follows it


@dataclass(frozen=True, slots=True)
class SharedPrefixes:
    """Row r takes its first `shared_R[r]` tokens from row `owners_R[r]`, which is on an earlier level.

    Rows of level 0 share nothing and own themselves. At least one token is left to every row, its last: that one's
    logits are wanted.
    """

    owners_R: NDArray[np.int64]
    shared_R: NDArray[np.int64]
    levels_R: NDArray[np.int64]

    @classmethod
    def find(
        cls,
        tokens_RT: NDArray[np.int64],
        lengths_R: NDArray[np.int64],
        shortest: int = SHORTEST,
        deepest: int = DEEPEST,
    ) -> SharedPrefixes:
        """Of right-padded rows; prefixes of fewer than `shortest` tokens are not shared, levels end at `deepest`."""
        n_rows = len(lengths_R)
        owners_R, shared_R, levels_R = np.arange(n_rows), np.zeros(n_rows, np.int64), np.zeros(n_rows, np.int64)
        # In the order of their tokens, no earlier row has more in common with a row than the one before it.
        ended_RT = np.where(np.arange(tokens_RT.shape[1]) < lengths_R[:, None], tokens_RT, -1)
        order_R = np.lexsort(ended_RT.T[::-1])
        for before, row in pairwise(order_R):
            limit = min(lengths_R[before], lengths_R[row] - 1)
            differs = tokens_RT[before, :limit] != tokens_RT[row, :limit]
            shared = int(differs.argmax()) if differs.any() else int(limit)
            if shared < max(shortest, 1):
                continue
            owner = before
            while shared_R[owner] >= shared:  # it has these tokens from another row itself
                owner = owners_R[owner]
            while levels_R[owner] >= max(deepest, 1):
                shared, owner = int(shared_R[owner]), owners_R[owner]
            owners_R[row], shared_R[row], levels_R[row] = owner, shared, levels_R[owner] + 1
        return cls(owners_R, shared_R, levels_R)
