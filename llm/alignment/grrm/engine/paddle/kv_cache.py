"""A preallocated key/value cache with one row of positions per slot."""

from __future__ import annotations

import numpy as np
import paddle
from numpy.typing import NDArray
from paddle import Tensor


class KVCache:
    """Keys and values of every layer for `n_slots` sequences of up to `max_len` positions.

    Stored flat, one row of `head_dim` numbers per (slot, kv head, position), so that any write is one in-place
    scatter; heads come before positions so that attention reads it without a transpose.
    """

    def __init__(
        self, n_layers: int, n_slots: int, n_kv_heads: int, max_len: int, head_dim: int, dtype: paddle.dtype
    ) -> None:
        self.n_slots, self.n_kv_heads, self.max_len, self.head_dim = n_slots, n_kv_heads, max_len, head_dim
        shape = [n_slots * n_kv_heads * max_len, head_dim]
        # Zeros, not empty memory: masked positions get weight 0, and 0 x NaN would still be NaN.
        self._keys = [paddle.zeros(shape, dtype) for _ in range(n_layers)]
        self._values = [paddle.zeros(shape, dtype) for _ in range(n_layers)]

    def row_indices(self, slots_N: NDArray[np.int64], positions_NT: NDArray[np.int64]) -> Tensor:
        """Flat rows of (slot, kv head, position), ordered N, head, T: what `write` wants for (N, head, T, D) data."""
        slot_heads_NK = slots_N[:, None] * self.n_kv_heads + np.arange(self.n_kv_heads)
        return paddle.to_tensor((slot_heads_NK[:, :, None] * self.max_len + positions_NT[:, None, :]).reshape(-1))

    def write(self, layer: int, rows: Tensor, keys: Tensor, values: Tensor) -> None:
        """Overwrite `rows` with keys and values; both are reshaped to (rows, head_dim)."""
        self._keys[layer].scatter_(rows, keys.reshape([-1, self.head_dim]))
        self._values[layer].scatter_(rows, values.reshape([-1, self.head_dim]))

    def read(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values as (slots, kv heads, max_len, head_dim) views."""
        shape = [self.n_slots, self.n_kv_heads, self.max_len, self.head_dim]
        return self._keys[layer].reshape(shape), self._values[layer].reshape(shape)

    def keep(self, slots_N: NDArray[np.int64]) -> None:
        """Drop all slots but these, which become slots 0..N-1; layer by layer, so the peak is one layer's copy."""
        index = paddle.to_tensor(slots_N)
        for tensors in (self._keys, self._values):
            for layer, flat in enumerate(tensors):
                kept = paddle.index_select(flat.reshape([self.n_slots, -1]), index)
                tensors[layer] = kept.reshape([-1, self.head_dim])
        self.n_slots = len(slots_N)
