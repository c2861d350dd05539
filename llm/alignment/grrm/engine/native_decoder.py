"""The decoder in C++ (csrc/kernels/decoder.h): one call per pass, nothing computed for slots that are free."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray

from grrm.engine.weights import DecoderWeights, collect_weights
from grrm_csrc.blas import sgemm_address
from grrm_csrc.build import kernels

ROW_MULTIPLE = 16  # of the rows of a matrix product; kRows of the kernel


class NativeCache:
    """Keys and values of every layer for `n_slots` sequences of up to `max_len` positions, laid out by the kernel."""

    def __init__(self, sizes: NDArray[np.int64]) -> None:
        self.sizes = sizes
        n_keys, n_values = ctypes.c_int64(), ctypes.c_int64()
        _library().grrm_cache_sizes(_address(sizes), ctypes.byref(n_keys), ctypes.byref(n_values))
        self.keys, self.values = (np.empty(n.value, np.float32) for n in (n_keys, n_values))


class NativeDecoder:
    """Forward pass over a PaddleNLP model's own parameters (Qwen2 or Llama in float32 on the CPU).

    The same calls as `grrm.engine.decoder.Decoder`. Raises UserError, on construction, for a model that neither of
    them implements.
    """

    computes_free_slots = False

    def __init__(self, model: Any) -> None:
        self.weights: DecoderWeights = collect_weights(model)

    @staticmethod
    def runs(model: Any) -> bool:
        """True where the kernels could be built, a BLAS was found and the model is one for them."""
        if kernels().library is None or sgemm_address() is None:
            return False
        weights = collect_weights(model)
        fused = len(weights.layers[0].attention_in) == 1 or len(weights.layers[0].mlp_in) == 1
        embedding = weights.embedding_VH
        return not fused and embedding.dtype == paddle.float32 and embedding.place.is_cpu_place()

    def new_cache(self, n_slots: int, max_len: int) -> NativeCache:
        """A cache for `n_slots` sequences of at most `max_len` tokens."""
        w = self.weights
        sizes = [w.embedding_VH.shape[1], w.n_heads, w.n_kv_heads, w.head_dim, w.layers[0].mlp_in[0].weight.shape[1]]
        sizes += [w.vocab_size, w.lm_head_is_transposed, len(w.layers), n_slots, max_len]
        return NativeCache(np.array(sizes, dtype=np.int64))

    def cache_bytes_per_token(self) -> int:
        """Size of one position of one slot over all layers."""
        w = self.weights
        rows = -(-w.head_dim // ROW_MULTIPLE) * ROW_MULTIPLE
        return 4 * len(w.layers) * w.n_kv_heads * (w.head_dim + rows)

    def prefill(
        self,
        tokens_RT: NDArray[np.int64],
        lengths_R: NDArray[np.int64],
        cache: NativeCache,
        slots_N: NDArray[np.int64],
        sources_N: NDArray[np.int64],
    ) -> NDArray[np.float32]:
        """Run right-padded prompts, put prompt `sources_N[i]` into slot `slots_N[i]`, return last-token logits (R, V).

        A prompt runs in the first of its slots and is copied to the others; padding is left out.
        """
        rows = np.arange(len(lengths_R))
        first_R = slots_N[np.searchsorted(sources_N, rows)] if np.all(np.diff(sources_N) >= 0) else None
        if first_R is None:
            first_R = slots_N[[int(np.flatnonzero(sources_N == row)[0]) for row in rows]]
        real_RT = np.arange(tokens_RT.shape[1]) < lengths_R[:, None]
        positions = np.broadcast_to(np.arange(tokens_RT.shape[1]), tokens_RT.shape)[real_RT]
        wanted = np.cumsum(lengths_R) - 1
        logits = self._pass(tokens_RT[real_RT], np.repeat(first_R, lengths_R), positions, wanted, cache)
        self._share(cache, first_R[sources_N], slots_N, lengths_R[sources_N])
        return logits

    def decode(
        self,
        slots_N: NDArray[np.int64],
        tokens_N: NDArray[np.int64],
        positions_N: NDArray[np.int64],
        cache: NativeCache,
    ) -> NDArray[np.float32]:
        """Feed one token to each of `slots_N` at its position, return the next token's logits (N, V)."""
        return self._pass(tokens_N, slots_N, positions_N, np.arange(len(slots_N)), cache)

    def _pass(
        self,
        tokens: NDArray[np.int64],
        slots: NDArray[np.int64],
        positions: NDArray[np.int64],
        wanted: NDArray[np.int64],
        cache: NativeCache,
    ) -> NDArray[np.float32]:
        arrays = [np.ascontiguousarray(array, dtype=np.int64) for array in (tokens, slots, positions, wanted)]
        rows = -(-len(wanted) // ROW_MULTIPLE) * ROW_MULTIPLE
        logits = np.empty((rows, self.weights.vocab_size), np.float32)
        tokens_at, slots_at, positions_at, wanted_at = map(_address, arrays)
        addresses = self._addresses()
        _library().grrm_decode(
            _address(cache.sizes),
            ctypes.c_float(self.weights.norm_epsilon),
            _address(addresses),
            tokens_at,
            slots_at,
            positions_at,
            ctypes.c_int64(len(tokens)),
            wanted_at,
            ctypes.c_int64(len(wanted)),
            _address(cache.keys),
            _address(cache.values),
            _address(logits),
        )
        return logits[: len(wanted)]

    def _share(
        self, cache: NativeCache, from_N: NDArray[np.int64], to_N: NDArray[np.int64], counts_N: NDArray[np.int64]
    ) -> None:
        others = from_N != to_N
        arrays = [np.ascontiguousarray(array[others], dtype=np.int64) for array in (from_N, to_N, counts_N)]
        _library().grrm_copy_slots(
            _address(cache.sizes),
            _address(cache.keys),
            _address(cache.values),
            *map(_address, arrays),
            ctypes.c_int64(len(arrays[0])),
        )

    def _addresses(self) -> NDArray[np.uint64]:
        """Where the parameters are now; see `decoder_at` in csrc/bindings/c_api.cpp for the order."""
        w = self.weights
        found = [sgemm_address() or 0]
        found += [t.data_ptr() for t in (w.embedding_VH, w.cos_PD, w.signed_sin_PD, w.final_norm, w.lm_head)]
        for layer in w.layers:
            found.append(layer.input_norm.data_ptr())
            for projection in (*layer.attention_in, layer.attention_out):
                found += [projection.weight.data_ptr(), 0 if projection.bias is None else projection.bias.data_ptr()]
            found.append(layer.mlp_norm.data_ptr())
            for projection in (*layer.mlp_in, layer.mlp_out):
                found += [projection.weight.data_ptr(), 0 if projection.bias is None else projection.bias.data_ptr()]
        return np.array(found, dtype=np.uint64)


def _library() -> ctypes.CDLL:
    library = kernels().library
    assert library is not None
    return library


def _address(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
