"""A key/value cache in blocks of positions, which sequences of the same prompt share."""

from __future__ import annotations

import numpy as np
import paddle
from numpy.typing import NDArray

BLOCK = 64  # positions in a block; the operator takes 1, 32, 64 or 128
_NONE = -1


def n_blocks(positions: int) -> int:
    """How many blocks hold so many positions."""
    return -(-positions // BLOCK)


class BlockTables:
    """Which blocks every slot owns, in the order of its positions, and how many slots own each block.

    There are as many blocks as all slots together can ask for. A block with several owners is full, so nobody writes
    to it.
    """

    def __init__(self, n_slots: int, max_len: int) -> None:
        self.max_len = max_len
        self.blocks_SB = np.full((n_slots, n_blocks(max_len)), _NONE, np.int32)
        self.n_owners = np.zeros(self.blocks_SB.size, np.int64)
        # The last is taken first: a block that was in use a moment ago before one that never was.
        self._free = list(range(self.blocks_SB.size))[::-1]

    @property
    def n_free(self) -> int:
        """Blocks that no slot owns."""
        return len(self._free)

    def begin(self, slot: int, length: int) -> None:
        """Blocks for the first `length` positions of a slot, in place of those that it had."""
        if not 0 < length <= self.max_len:
            raise ValueError(f"a sequence of {length} tokens where a slot has room for 1 to {self.max_len}")
        self._release(slot)
        for index in range(n_blocks(length)):
            self._take(slot, index)

    def share(self, slot: int, owner: int, length: int) -> list[tuple[int, int]]:
        """Let a slot begin with the `length` positions of `owner`, in place of its own: full blocks belong to both.

        Returns (from, to) of the last block where it is not full: each goes on in one of its own, so it is to be
        copied.
        """
        self._release(slot)
        full = length // BLOCK
        shared = self.blocks_SB[owner, :full]
        self.blocks_SB[slot, :full] = shared
        self.n_owners[shared] += 1
        if length % BLOCK == 0:
            return []
        self._take(slot, full)
        return [(int(self.blocks_SB[owner, full]), int(self.blocks_SB[slot, full]))]

    def extend(self, slots_N: NDArray[np.int64], positions_N: NDArray[np.int64]) -> None:
        """A block for position `positions_N[i]` of slot `slots_N[i]`, where it begins one."""
        if len(positions_N) and not 0 < positions_N.min() <= positions_N.max() < self.max_len:
            raise ValueError(
                f"positions from {positions_N.min()} to {positions_N.max()} where a step needs 1 to {self.max_len - 1}"
            )
        indices_N = positions_N // BLOCK
        for i in np.flatnonzero(self.blocks_SB[slots_N, indices_N] == _NONE):
            self._take(int(slots_N[i]), int(indices_N[i]))

    def _take(self, slot: int, index: int) -> None:
        block = self._free.pop()  # there is one: no slot has more than its share
        self.blocks_SB[slot, index], self.n_owners[block] = block, 1

    def _release(self, slot: int) -> None:
        """Give up a slot's blocks; those that have another owner stay its own."""
        for block in self.blocks_SB[slot][self.blocks_SB[slot] != _NONE].tolist():
            self.n_owners[block] -= 1
            if self.n_owners[block] == 0:
                self._free.append(block)
        self.blocks_SB[slot] = _NONE


class BlockCache:
    """Keys and values of every layer for `n_slots` sequences of up to `max_len` positions.

    Per layer (blocks, kv heads, BLOCK, head dim), as block attention reads and writes them; `tables` say whose a
    block is.
    """

    def __init__(
        self, n_layers: int, n_slots: int, n_kv_heads: int, max_len: int, head_dim: int, dtype: paddle.dtype
    ) -> None:
        self.n_slots, self.max_len = n_slots, max_len
        self.tables = BlockTables(n_slots, max_len)
        shape = [self.tables.blocks_SB.size, n_kv_heads, BLOCK, head_dim]
        self.keys = [paddle.zeros(shape, dtype) for _ in range(n_layers)]
        self.values = [paddle.zeros(shape, dtype) for _ in range(n_layers)]

    def copy(self, pairs: list[tuple[int, int]]) -> None:
        """Block `a` to block `b` for every (a, b), in all layers."""
        if not pairs:
            return
        sources, targets = (paddle.to_tensor(np.array(blocks)) for blocks in zip(*pairs, strict=True))
        for stored in (*self.keys, *self.values):
            stored.scatter_(targets, paddle.gather(stored, sources))
