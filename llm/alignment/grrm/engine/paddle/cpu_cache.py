"""The KV cache of the C++ decoder, with sharing: samples share their prompt, prompts share prefixes."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from grrm.engine.block_cache import BlockTables
from grrm.models import cpu_kernels

SHORTEST = 16  # tokens worth sharing: a pass over fewer rows takes as long
DEEPEST = 3  # every level is a pass of its own; three are an instruction, a source, what follows it


class CpuCache:
    """Keys and values of every layer for `n_slots` sequences of up to `max_len` positions, in blocks (kv_cache.h).

    `sizes` are those of the model and the cache as the kernels read them, `addresses` say where the model's parameters
    are, `packed` is a copy of its matrices in the layout the BLAS multiplies fastest, or None; all hold while the cache
    is in use.
    """

    def __init__(
        self,
        sizes: NDArray[np.int64],
        n_slots: int,
        max_len: int,
        addresses: NDArray[np.uint64],
        packed: NDArray[np.float32] | None,
    ) -> None:
        self.sizes, self.addresses, self.packed = sizes, addresses, packed
        self.n_slots, self.max_len = n_slots, max_len
        self.tables = BlockTables(n_slots, max_len, int(sizes[-2]))
        self.keys, self.values = (np.empty(count, np.float32) for count in cache_counts(sizes))
        # Slots of the same prompt have the same number here, and the length of what they share.
        self._prompts, self._shared = np.arange(self.n_slots), np.zeros(self.n_slots, np.int64)
        self._n_prompts = self.n_slots

    def share(self, slots_S: NDArray[np.int64], owners_S: NDArray[np.int64], lengths_S: NDArray[np.int64]) -> None:
        """Let every slot share the first `lengths_S` positions of its owner instead of its own; none for 0."""
        pairs: list[tuple[int, int]] = []
        for slot, owner, length in zip(slots_S.tolist(), owners_S.tolist(), lengths_S.tolist(), strict=True):
            if length:
                pairs += self.tables.share(slot, owner, length)
            else:
                self.tables.release(slot)
        if pairs:
            sources, targets = (cpu_kernels.int64s(blocks) for blocks in zip(*pairs, strict=True))
            n = ctypes.c_int64(len(pairs))
            cpu_kernels.call("grrm_copy_blocks", self.sizes, self.keys, self.values, sources, targets, n)

    def begin(self, slots_S: NDArray[np.int64], sources_S: NDArray[np.int64], lengths_P: NDArray[np.int64]) -> None:
        """Slot `slots_S[i]` now begins with prompt `sources_S[i]`, whose length is `lengths_P[sources_S[i]]`."""
        self._prompts[slots_S], self._shared[slots_S] = self._n_prompts + sources_S, lengths_P[sources_S]
        self._n_prompts += len(lengths_P)

    def sharing(self, slots_S: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """An order in which slots of the same prompt are neighbours; in it, `owners` and `shared` of each.

        The first `shared` positions, those of a prompt with several slots, are read from the slot `owners`.
        """
        order_S = np.argsort(self._prompts[slots_S], kind="stable")
        sorted_S = slots_S[order_S]
        _, first, group_S, counts = np.unique(
            self._prompts[sorted_S], return_index=True, return_inverse=True, return_counts=True
        )
        return order_S, sorted_S[first[group_S]], np.where(counts[group_S] > 1, self._shared[sorted_S], 0)


def cache_counts(sizes: NDArray[np.int64]) -> tuple[int, int]:
    """Number of elements of the keys and the values of a cache."""
    counts = np.empty(2, np.int64)
    cpu_kernels.call("grrm_cache_sizes", sizes, counts)
    return int(counts[0]), int(counts[1])


@dataclass(frozen=True, slots=True)
class SharedPrefixes:
    """Common prefixes of the prompts of a prefill, so that each is computed once (a flattened trie).

    Row p takes its first `shared_P[p]` tokens from row `owners_P[p]`, which is on an earlier level.

    Rows of level 0 share nothing and own themselves. At least the last token of every row is computed, for its logits.
    """

    owners_P: NDArray[np.int64]
    shared_P: NDArray[np.int64]
    levels_P: NDArray[np.int64]

    @classmethod
    def find(
        cls,
        tokens_PT: NDArray[np.int64],
        lengths_P: NDArray[np.int64],
        shortest: int = SHORTEST,
        deepest: int = DEEPEST,
    ) -> SharedPrefixes:
        """Of right-padded rows; prefixes of fewer than `shortest` tokens are not shared, levels end at `deepest`."""
        n_rows = len(lengths_P)
        owners_P, shared_P, levels_P = np.arange(n_rows), np.zeros(n_rows, np.int64), np.zeros(n_rows, np.int64)
        # In the order of their tokens, no earlier row has more in common with a row than the one before it.
        ended_PT = np.where(np.arange(tokens_PT.shape[1]) < lengths_P[:, None], tokens_PT, -1)
        order_P = np.lexsort(ended_PT.T[::-1])
        for before, row in pairwise(order_P):
            limit = min(lengths_P[before], lengths_P[row] - 1)
            differs = tokens_PT[before, :limit] != tokens_PT[row, :limit]
            shared = int(differs.argmax()) if differs.any() else int(limit)
            if shared < max(shortest, 1):
                continue
            owner = before
            while shared_P[owner] >= shared:  # it has these tokens from another row itself
                owner = owners_P[owner]
            while levels_P[owner] >= max(deepest, 1):
                shared, owner = int(shared_P[owner]), owners_P[owner]
            owners_P[row], shared_P[row], levels_P[row] = owner, shared, levels_P[owner] + 1
        return cls(owners_P, shared_P, levels_P)
