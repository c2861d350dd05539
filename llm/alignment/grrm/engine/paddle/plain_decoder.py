"""The decoder in plain Paddle operators: prefill of prompts, then one token per slot and step; and its KV cache.

Only operations that are fast on Paddle's CPU back end are used: operands of elementwise operations have equal
shapes (broadcasting is some twenty times slower), attention is matmul, softmax, matmul. Matrix products run on whole
multiples of `ROW_MULTIPLE` rows, where BLAS gives a row the same bits whatever the other rows are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from numpy.typing import NDArray
from paddle import Tensor

from grrm.engine.block_cache import BlockTables
from grrm.engine.paddle.decoder import OnLogits, positions_of_a_part
from grrm.engine.paddle.weights import DecoderWeights, LayerWeights, collect_weights, project

ROW_MULTIPLE = 16
_QUERY_BLOCK = 512  # bounds the attention scores of a long prompt to block x length


def round_up(n: int) -> int:
    """The smallest multiple of ROW_MULTIPLE that is at least `n`."""
    return -(-n // ROW_MULTIPLE) * ROW_MULTIPLE


class KVCache:
    """A preallocated KV cache with a row of positions per slot, for the plain decoder.

    Keys and values of every layer for `n_slots` sequences of up to `max_len` positions are stored flat, one row of
    `head_dim` numbers per (slot, kv head, position), so that any write is one in-place scatter; heads come before
    positions so that attention reads it without a transpose.
    """

    tables: BlockTables | None = None  # every slot has room for the longest sequence

    def __init__(
        self, n_layers: int, n_slots: int, n_kv_heads: int, max_len: int, head_dim: int, dtype: paddle.dtype
    ) -> None:
        self.n_slots, self.n_kv_heads, self.max_len, self.head_dim = n_slots, n_kv_heads, max_len, head_dim
        shape = [n_slots * n_kv_heads * max_len, head_dim]
        # Zeros, not empty memory: masked positions get weight 0, and 0 x NaN would still be NaN.
        self._keys = [paddle.zeros(shape, dtype) for _ in range(n_layers)]
        self._values = [paddle.zeros(shape, dtype) for _ in range(n_layers)]

    def row_indices(self, slots_S: NDArray[np.int64], positions_ST: NDArray[np.int64]) -> Tensor:
        """Flat rows of (slot, kv head, position), ordered S, head, T: what `write` wants for (S, head, T, D) data."""
        slot_heads = slots_S[:, None] * self.n_kv_heads + np.arange(self.n_kv_heads)
        return paddle.to_tensor((slot_heads[:, :, None] * self.max_len + positions_ST[:, None, :]).reshape(-1))

    def write(self, layer: int, rows: Tensor, keys: Tensor, values: Tensor) -> None:
        """Overwrite `rows` with keys and values; both are reshaped to (rows, head_dim)."""
        self._keys[layer].scatter_(rows, keys.reshape([-1, self.head_dim]))
        self._values[layer].scatter_(rows, values.reshape([-1, self.head_dim]))

    def read(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values as (slots, kv heads, max_len, head_dim) views."""
        shape = [self.n_slots, self.n_kv_heads, self.max_len, self.head_dim]
        return self._keys[layer].reshape(shape), self._values[layer].reshape(shape)

    def keep(self, slots_S: NDArray[np.int64]) -> None:
        """Drop all slots but these, which become slots 0, 1, 2, …; layer by layer, so the peak is one layer's copy."""
        index = paddle.to_tensor(slots_S)
        for tensors in (self._keys, self._values):
            for layer, flat in enumerate(tensors):
                rows = paddle.index_select(flat.reshape([self.n_slots, -1]), index)
                tensors[layer] = rows.reshape([-1, self.head_dim])
        self.n_slots = len(slots_S)


class PlainDecoder:
    """Forward pass over a PaddleNLP model's own parameters (Qwen2, Qwen3 or Llama, float32 or bfloat16).

    Raises UserError, on construction, for a model it does not implement.
    """

    computes_padding = True

    def __init__(self, model: Any) -> None:
        self.weights: DecoderWeights = collect_weights(model)
        self._group = self.weights.n_heads // self.weights.n_kv_heads

    def new_cache(self, n_slots: int, max_len: int, max_bytes: int | None = None) -> KVCache:
        """An empty cache for `n_slots` sequences of at most `max_len` tokens, for fewer of them beyond `max_bytes`."""
        w, max_len = self.weights, round_up(max_len)  # prompts are written with their padding
        if max_bytes is not None:
            n_slots = max(1, min(n_slots, max_bytes // self.cache_bytes(max_len)))
        return KVCache(len(w.layers), n_slots, w.n_kv_heads, max_len, w.head_dim, w.embedding_VH.dtype)

    def cache_bytes(self, max_len: int) -> int:
        return self.weights.cache_bytes(max_len)

    @paddle.no_grad()
    def prefill(
        self,
        tokens_PT: NDArray[np.int64],
        lengths_P: NDArray[np.int64],
        cache: KVCache,
        slots_S: NDArray[np.int64],
        sources_S: NDArray[np.int64],
        on_logits: OnLogits | None = None,
    ) -> NDArray[np.float32]:
        """Padding needs no mask: it comes after every real token, and decoding overwrites it before it is visible."""
        rows, length = tokens_PT.shape
        positions_T = np.arange(length)
        cache_rows = cache.row_indices(slots_S, np.broadcast_to(positions_T, (len(slots_S), length)))
        sources = paddle.to_tensor(sources_S)
        rotary = self._rotary(np.tile(positions_T, rows))
        hidden = self.weights.look_up(paddle.to_tensor(tokens_PT.reshape(-1)))
        for index, layer in enumerate(self.weights.layers):
            q, k, v = self._qkv(hidden, layer, rotary)
            q, k, v = (_positions_after_heads(x, rows, length) for x in (q, k, v))
            cache.write(index, cache_rows, paddle.gather(k, sources), paddle.gather(v, sources))
            attended = _causal_attention(q, k, v).transpose([0, 3, 1, 2, 4]).reshape([hidden.shape[0], -1])
            hidden = self._finish_layer(hidden, attended, layer)
        if on_logits is not None:
            part = positions_of_a_part(self.weights.vocab_size)
            for begin in range(0, int(lengths_P[0]), part):
                on_logits(begin, self._logits(hidden[begin : begin + part])[: int(lengths_P[0]) - begin])
        last = np.resize(np.arange(rows) * length + lengths_P - 1, round_up(rows))
        return self._logits(paddle.gather(hidden, paddle.to_tensor(last)))[:rows]

    def decode(
        self,
        slots_S: NDArray[np.int64],
        tokens_S: NDArray[np.int64],
        positions_S: NDArray[np.int64],
        cache: KVCache,
    ) -> NDArray[np.float32]:
        """Shapes are fixed: the other slots, which must be free, take part with a token at position 0."""
        if np.array_equal(slots_S, np.arange(cache.n_slots)):
            return self._decode_all(tokens_S, positions_S, cache)
        all_tokens_S, all_positions_S = np.zeros(cache.n_slots, np.int64), np.zeros(cache.n_slots, np.int64)
        all_tokens_S[slots_S], all_positions_S[slots_S] = tokens_S, positions_S
        return self._decode_all(all_tokens_S, all_positions_S, cache)[slots_S]

    @paddle.no_grad()
    def _decode_all(
        self, tokens_S: NDArray[np.int64], positions_S: NDArray[np.int64], cache: KVCache
    ) -> NDArray[np.float32]:
        n_slots, w = cache.n_slots, self.weights
        cache_rows = cache.row_indices(np.arange(n_slots), positions_S[:, None])
        visible_ST = np.arange(cache.max_len) <= positions_S[:, None]
        bias_ST = np.where(visible_ST, np.float32(0), np.float32(-np.inf))
        bias = _spread(paddle.to_tensor(bias_ST), [n_slots, w.n_kv_heads, self._group, cache.max_len])
        rotary = self._rotary(positions_S)
        hidden = w.look_up(paddle.to_tensor(tokens_S))
        for index, layer in enumerate(w.layers):
            q, k, v = self._qkv(hidden, layer, rotary)
            cache.write(index, cache_rows, k, v)
            keys, values = cache.read(index)
            hidden = self._finish_layer(hidden, _attend(q, keys, values, bias).reshape([n_slots, -1]), layer)
        return self._logits(hidden)

    def _qkv(self, hidden: Tensor, layer: LayerWeights, rotary: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
        """Rotated queries (N, kv, group, D) and keys (N, kv, 1, D), values (N, kv, 1, D), of N tokens."""
        normed = self._norm(hidden, layer.input_norm)
        projected = [project(normed, p) for p in layer.attention_in]
        kv_heads, group, head_dim = self.weights.n_kv_heads, self._group, self.weights.head_dim
        # Fused or not, a kv head's queries stand beside its key and value: query head = kv head x group + i.
        parts = [x.reshape([x.shape[0], kv_heads, -1, head_dim]) for x in projected]
        if layer.head_norms:
            parts = [*(self._norm(x, weight) for x, weight in zip(parts[:2], layer.head_norms, strict=True)), parts[2]]
        if len(parts) == 1:
            queries_keys, values = parts[0][:, :, : group + 1], parts[0][:, :, group + 1 :]
        else:
            queries_keys, values = paddle.concat(parts[:2], axis=2), parts[2]
        rotated = _rotate(queries_keys, *rotary)
        return rotated[:, :, :group], rotated[:, :, group:], values

    def _finish_layer(self, hidden: Tensor, attended: Tensor, layer: LayerWeights) -> Tensor:
        hidden = hidden + self.weights.project_out(attended, layer.attention_out)
        normed = self._norm(hidden, layer.mlp_norm)
        if layer.experts is not None:
            return hidden + layer.experts(normed)
        gate_up = [project(normed, p) for p in layer.mlp_in]
        gate, up = paddle.chunk(gate_up[0], 2, axis=-1) if len(gate_up) == 1 else gate_up
        return hidden + self.weights.project_out(F.silu(gate) * up, layer.mlp_out)

    def _norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        # Not `fused_rms_norm`: Paddle's CPU kernel of it has AVX-512 instructions, which end the process elsewhere.
        mean_square = (hidden * hidden).mean(-1, keepdim=True)
        return hidden * paddle.rsqrt(mean_square + self.weights.norm_epsilon) * weight

    def _logits(self, hidden: Tensor) -> NDArray[np.float32]:
        normed = self._norm(hidden, self.weights.final_norm)
        return self.weights.all_logits(normed).astype("float32").numpy()

    def _rotary(self, positions_N: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines spread over a kv head's queries and key: (N, kv, group + 1, D) each."""
        w = self.weights
        index = paddle.to_tensor(np.minimum(positions_N, w.cos_TD.shape[0] - 1))  # padding may lie behind the table
        shape = [len(positions_N), w.n_kv_heads, self._group + 1, w.head_dim]
        cos, sin = (_spread(paddle.gather(table, index), shape) for table in (w.cos_TD, w.signed_sin_TD))
        return cos, sin


def _spread(x_ND: Tensor, shape: list[int]) -> Tensor:
    """(N, D) repeated over the two middle axes of `shape`."""
    return x_ND.reshape([shape[0], 1, 1, shape[3]]).expand(shape).contiguous()


def _rotate(x: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + paddle.concat([x[..., half:], x[..., :half]], axis=-1) * signed_sin


def _positions_after_heads(x: Tensor, rows: int, length: int) -> Tensor:
    """(P*T, kv, m, D) to (P, kv, m, T, D)."""
    return x.reshape([rows, length, *x.shape[1:]]).transpose([0, 2, 3, 1, 4])


def _attend(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """Softmax attention of q (…, M, D) over keys and values (…, T, D); `bias` has the scores' shape (…, M, T)."""
    scores = paddle.matmul(q * (1 / math.sqrt(q.shape[-1])), keys, transpose_y=True).astype("float32") + bias
    return paddle.matmul(F.softmax(scores, axis=-1).astype(values.dtype), values)


def _causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of q (P, kv, group, T, D) over k, v (P, kv, 1, T, D), in blocks of queries."""
    rows, kv_heads, group, length, head_dim = q.shape
    blocks = []
    for start in range(0, length, _QUERY_BLOCK):
        end = min(start + _QUERY_BLOCK, length)
        future = np.triu(np.full((end - start, end), -np.inf, np.float32), k=start + 1)
        bias = paddle.to_tensor(np.tile(future, (group, 1))).expand([rows, kv_heads, group * (end - start), end])
        queries = q[:, :, :, start:end].reshape([rows, kv_heads, -1, head_dim])
        attended = _attend(queries, k[:, :, 0, :end], v[:, :, 0, :end], bias.contiguous())
        blocks.append(attended.reshape([rows, kv_heads, group, end - start, head_dim]))
    return blocks[0] if len(blocks) == 1 else paddle.concat(blocks, axis=3)
