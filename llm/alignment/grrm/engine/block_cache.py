"""A key/value cache in blocks of positions, which sequences of the same prompt share."""

from __future__ import annotations

import numpy as np
import paddle
from numpy.typing import NDArray

BLOCK = 64  # positions in a block; the operator takes 1, 32, 64 or 128
_NONE = -1


def n_blocks(positions: int) -> int:
    """Return the number of blocks for this many positions."""
    return -(-positions // BLOCK)


def blocks_within(n_slots: int, max_len: int, block_bytes: int, max_bytes: int | None) -> int:
    """Blocks for `n_slots` sequences of `max_len` positions; fewer where they would exceed `max_bytes`.

    At least those of one sequence.
    """
    row = n_blocks(max_len)
    affordable = n_slots * row if max_bytes is None else max_bytes // block_bytes
    return max(row, min(n_slots * row, affordable))


class BlockTables:
    """Blocks of every slot, in the order of its positions, and the number of owners of each block.

    Blocks are allocated as sequences grow. There may be fewer than all slots together can ask for, by default there are
    as many; to ask for more than there are raises ValueError. A block with several owners is full, so nobody writes to
    it.
    """

    def __init__(self, n_slots: int, max_len: int, n_all: int | None = None) -> None:
        self.max_len = max_len
        self.blocks_SB = np.full((n_slots, n_blocks(max_len)), _NONE, np.int32)
        self.n_owners = np.zeros(self.blocks_SB.size if n_all is None else n_all, np.int64)
        # A stack, so that blocks that were just released are reused before memory that was never touched.
        self._free = list(range(self.n_owners.size))[::-1]

    @property
    def n_free(self) -> int:
        """Blocks that no slot owns."""
        return len(self._free)

    def begin(self, slot: int, length: int) -> None:
        """Blocks for the first `length` positions of a slot, in place of those that it had."""
        self.release(slot)
        self.grow(slot, length)

    def grow(self, slot: int, length: int) -> None:
        """Blocks up to `length` positions of a slot, beyond those that it has."""
        if not 0 < length <= self.max_len:
            raise ValueError(f"a sequence of {length} tokens where a slot has room for 1 to {self.max_len}")
        for index in range(n_blocks(length)):
            if self.blocks_SB[slot, index] == _NONE:
                self._take(slot, index)

    def share(self, slot: int, owner: int, length: int) -> list[tuple[int, int]]:
        """Let a slot begin with the `length` positions of `owner`, in place of its own: full blocks belong to both.

        Returns (from, to) of the last block where it is not full: each goes on in one of its own, so it is to be
        copied.
        """
        self.release(slot)
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

    def can_extend(self, slots_N: NDArray[np.int64], positions_N: NDArray[np.int64]) -> bool:
        """Return whether there are blocks enough for `extend`."""
        return int((self.blocks_SB[slots_N, positions_N // BLOCK] == _NONE).sum()) <= self.n_free

    def release(self, slot: int) -> None:
        """Give up a slot's blocks; those that have another owner stay its own."""
        for block in self.blocks_SB[slot][self.blocks_SB[slot] != _NONE].tolist():
            self.n_owners[block] -= 1
            if self.n_owners[block] == 0:
                self._free.append(block)
        self.blocks_SB[slot] = _NONE

    def _take(self, slot: int, index: int) -> None:
        if not self._free:
            raise ValueError(f"slot {slot} needs a block where all {self.n_owners.size} are in use")
        block = self._free.pop()
        self.blocks_SB[slot, index], self.n_owners[block] = block, 1


class BlockCache:
    """Keys and values of every layer for `n_slots` sequences of up to `max_len` positions, in `n_all` blocks.

    Per layer (blocks, kv heads, BLOCK, head dim), as block attention reads and writes them; `tables` say whose a
    block is.
    """

    def __init__(
        self,
        n_layers: int,
        n_slots: int,
        n_kv_heads: int,
        max_len: int,
        head_dim: int,
        dtype: paddle.dtype,
        n_all: int | None = None,
    ) -> None:
        self.n_slots, self.max_len = n_slots, max_len
        self.tables = BlockTables(n_slots, max_len, n_all)
        shape = [self.tables.n_owners.size, n_kv_heads, BLOCK, head_dim]
        self.keys = [paddle.zeros(shape, dtype) for _ in range(n_layers)]
        self.values = [paddle.zeros(shape, dtype) for _ in range(n_layers)]

    def copy(self, pairs: list[tuple[int, int]]) -> None:
        """Block `a` to block `b` for every (a, b), in all layers."""
        if not pairs:
            return
        sources, targets = (paddle.to_tensor(np.array(blocks)) for blocks in zip(*pairs, strict=True))
        for stored in (*self.keys, *self.values):
            stored.scatter_(targets, paddle.gather(stored, sources))
