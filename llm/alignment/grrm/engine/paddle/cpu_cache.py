"""The cache of the C++ decoder: keys and values, and which sequences begin with the same prompt."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from grrm.models import cpu_kernels


class CpuCache:
    """Keys and values of every layer for `n_slots` sequences of up to `max_len` positions, laid out by the kernel.

    `addresses` say where the model's parameters are, `extents` (layers x 7 x 8) where its matrices are not zero,
    `packed` has them as the BLAS likes to read them, or is None; all hold while the cache is in use.
    """

    def __init__(
        self,
        sizes: NDArray[np.int64],
        addresses: NDArray[np.uint64],
        extents: NDArray[np.int64],
        packed: NDArray[np.float32] | None,
    ) -> None:
        self.sizes, self.addresses, self.extents, self.packed = sizes, addresses, extents, packed
        self.n_slots, self.max_len = int(sizes[-2]), int(sizes[-1])
        self.keys, self.values = (np.empty(count, np.float32) for count in cache_counts(sizes))
        # Slots of the same prompt have the same number here, and the length of what they share.
        self._prompts, self._shared = np.arange(self.n_slots), np.zeros(self.n_slots, np.int64)
        self._n_prompts = self.n_slots

    def begin(self, slots_N: NDArray[np.int64], sources_N: NDArray[np.int64], lengths_R: NDArray[np.int64]) -> None:
        """Slot `slots_N[i]` now begins with prompt `sources_N[i]`, whose length is `lengths_R[sources_N[i]]`."""
        self._prompts[slots_N], self._shared[slots_N] = self._n_prompts + sources_N, lengths_R[sources_N]
        self._n_prompts += len(lengths_R)

    def sharing(self, slots_N: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """An order in which slots of the same prompt are neighbours, and, in it, `owners` and `shared` of each."""
        order_N = np.argsort(self._prompts[slots_N], kind="stable")
        sorted_N = slots_N[order_N]
        _, first, which_N, counts = np.unique(
            self._prompts[sorted_N], return_index=True, return_inverse=True, return_counts=True
        )
        return order_N, sorted_N[first[which_N]], np.where(counts[which_N] > 1, self._shared[sorted_N], 0)


def cache_counts(sizes: NDArray[np.int64]) -> tuple[int, int]:
    """How many numbers the keys and the values of a cache are."""
    counts = np.empty(2, np.int64)
    cpu_kernels.call("grrm_cache_sizes", sizes, counts)
    return int(counts[0]), int(counts[1])
