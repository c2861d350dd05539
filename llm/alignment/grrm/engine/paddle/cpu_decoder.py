"""The decoder in C++ (csrc/kernels/decoder.h): one call per pass, no computation for free slots."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray
from paddle import Tensor

from grrm.engine.block_cache import BLOCK, blocks_within, n_blocks
from grrm.engine.paddle.cpu_cache import CpuCache, SharedPrefixes, cache_counts
from grrm.engine.paddle.decoder import OnLogits, positions_of_a_part
from grrm.engine.paddle.weights import DecoderWeights, Projection, collect_weights
from grrm.models import cpu_kernels
from grrm_csrc.blas import blas_addresses

_ROWS = 16  # kRows of the kernel: logits have room for a multiple of it
FEW_WEIGHTS = 1 << 24  # smaller models generate as fast without packing, in float32


class CpuDecoder:
    """Forward pass over a PaddleNLP model's own parameters (Qwen2, Qwen3 or Llama in float32 on the CPU).

    A cache is valid for the parameters at its creation: when they change, a new one is needed. Same interface as
    `PlainDecoder`. The constructor raises UserError for a model that neither of them implements, and ValueError for one
    that only the other does (see `unsupported_reason`).
    """

    computes_padding = False  # neither free slots nor the padding of short prompts

    def __init__(
        self, model: Any, *, max_packed_bytes: int = 0, precision: str = "float32", pass_tokens: int = 4096
    ) -> None:
        """Collect the weights, and choose whether to pack them.

        Args:
            model: its parameters are read at every pass.
            max_packed_bytes: weights of up to this size are copied into the packed layout of the BLAS, which is
                fastest. The copy is reused by the next cache and updated when the weights change. Models too small to
                benefit are not packed.
            precision: "bfloat16" rounds the operands of all products; accumulation and all else stay float32. "int8"
                quantizes weights to eight bits and activations to 16 (see `PRECISIONS` in csrc/blas.py). Both always
                pack.
            pass_tokens: tokens of a prefill pass at most, which bounds its memory; longer prompts continue in the next
                pass.
        """
        self.weights: DecoderWeights = collect_weights(model)
        self._pass_tokens = pass_tokens
        self._precision, self._blas = precision, blas_addresses(precision) or (0, 0, 0, 0)
        fits = _n_multiplied(self.weights) <= max_packed_bytes // 4
        self._packs = precision != "float32" or (fits and _n_multiplied(self.weights) > FEW_WEIGHTS)
        self._packed_memory: NDArray[np.float32] | None = None
        self._packed_weights: tuple[int, bytes] | None = None  # fingerprint and addresses of what it holds
        reason = _unsupported_reason(self.weights)
        if reason:
            raise ValueError(f"the C++ decoder cannot run this model: {reason}")

    @staticmethod
    def unsupported_reason(model: Any, precision: str = "float32") -> str | None:
        """Return the reason that the C++ decoder cannot run `model` on this machine, None if it can."""
        if not cpu_kernels.available():
            return "the kernels could not be built"
        if blas_addresses(precision) is None:
            return "the paddle wheel brings no BLAS that is known"
        return _unsupported_reason(collect_weights(model))

    def new_cache(self, n_slots: int, max_len: int, max_bytes: int | None = None) -> CpuCache:
        """A cache for `n_slots` sequences of at most `max_len` tokens, for the weights as they are now.

        It has fewer blocks where they would exceed `max_bytes`.
        """
        n_all = blocks_within(n_slots, max_len, self.cache_bytes(BLOCK), max_bytes)
        sizes, addresses = self._sizes(n_all, n_blocks(max_len)), self._addresses()
        packed = self._packed(sizes, addresses) if self._packs else None
        return CpuCache(sizes, n_slots, max_len, addresses, packed)

    def _packed(self, sizes: NDArray[np.int64], addresses: NDArray[np.uint64]) -> NDArray[np.float32] | None:
        """The weights in the packed layout of the BLAS; None if it has none, or there is no memory for the copy."""
        count = cpu_kernels.call("grrm_pack", sizes, addresses, None)
        if not count:
            return None
        if self._packed_memory is None or len(self._packed_memory) < count:
            # A mapping of its own, because most of the memory that MKL asks for is never written to, and is then never
            # backed by pages. It is kept: to map it for every rollout takes longer than to fill it.
            try:
                self._packed_memory, self._packed_weights = np.frombuffer(mmap.mmap(-1, 4 * count), np.float32), None
            except OSError as error:
                if self._precision == "int8":  # only packed matrices have eight bits
                    raise MemoryError(f"no room for {4 * count / 2**30:.1f} GiB of weights in eight bits") from error
                return None  # products read the model's own weights, slower
        packed, fingerprint = self._packed_memory[:count], np.empty(1, np.uint64)
        cpu_kernels.call("grrm_fingerprint", sizes, addresses, fingerprint)
        current = int(fingerprint[0]), addresses.tobytes()
        if self._packed_weights != current:
            self._packed_weights = None  # until the copy is complete
            cpu_kernels.call("grrm_pack", sizes, addresses, packed)
            self._packed_weights = current
        return packed

    def cache_bytes(self, max_len: int) -> int:
        return 4 * sum(cache_counts(self._sizes(n_blocks(max_len), 1)))

    def _sizes(self, n_all: int, row: int) -> NDArray[np.int64]:
        """See `Sizes` in csrc/bindings/c_api.cpp for the order."""
        w = self.weights
        hidden, inner = w.embedding_VH.shape[1], w.layers[0].mlp_in[0].weight.shape[1]
        model = [hidden, w.n_heads, w.n_kv_heads, w.head_dim, inner, w.vocab_size, w.lm_head_is_transposed]
        return cpu_kernels.int64s([*model, len(w.layers), n_all, row])

    def prefill(
        self,
        tokens_PT: NDArray[np.int64],
        lengths_P: NDArray[np.int64],
        cache: CpuCache,
        slots_S: NDArray[np.int64],
        sources_S: NDArray[np.int64],
        on_logits: OnLogits | None = None,
    ) -> NDArray[np.float32]:
        """A prompt is computed in the first of its slots, whose full blocks the others share; padding is left out.

        A prefix that several prompts share is computed once.
        """
        first_P, tables = slots_S[np.unique(sources_S, return_index=True)[1]], cache.tables
        prefixes = SharedPrefixes.find(tokens_PT, lengths_P)
        logits_PV = np.empty((len(lengths_P), self.weights.vocab_size), np.float32)
        for level in range(prefixes.levels_P.max() + 1):
            rows = np.flatnonzero(prefixes.levels_P == level)
            begin_P = prefixes.shared_P[rows]
            cache.share(first_P[rows], first_P[prefixes.owners_P[rows]], begin_P)
            for slot, length in zip(first_P[rows].tolist(), lengths_P[rows].tolist(), strict=True):
                tables.grow(slot, length)
            logits_PV[rows] = self._run_rows(tokens_PT[rows], begin_P, lengths_P[rows], first_P[rows], cache, on_logits)
        others = first_P[sources_S] != slots_S
        cache.share(slots_S[others], first_P[sources_S][others], lengths_P[sources_S][others])
        cache.begin(slots_S, sources_S, lengths_P)
        return logits_PV

    def _run_rows(
        self,
        tokens_PT: NDArray[np.int64],
        begin_P: NDArray[np.int64],
        end_P: NDArray[np.int64],
        slots_P: NDArray[np.int64],
        cache: CpuCache,
        on_logits: OnLogits | None,
    ) -> NDArray[np.float32]:
        """Tokens from `begin_P` to `end_P` of every row in its slot; logits of the last."""
        positions_T = np.arange(tokens_PT.shape[1])
        run_PT = (begin_P[:, None] <= positions_T) & (positions_T < end_P[:, None])
        counts_P = end_P - begin_P
        tokens_N, slots_N = tokens_PT[run_PT], np.repeat(slots_P, counts_P)
        positions_N, last_P = np.broadcast_to(positions_T, tokens_PT.shape)[run_PT], np.cumsum(counts_P) - 1
        step = self._pass_tokens
        if on_logits is not None:  # every position has logits
            step, last_P = min(positions_of_a_part(self.weights.vocab_size), step), np.arange(len(tokens_N))
        logits = []
        for begin in range(0, len(tokens_N), step):
            part = slice(begin, begin + step)
            outputs = last_P[(last_P >= part.start) & (last_P < part.stop)] - begin
            logits.append(self._run(tokens_N[part], slots_N[part], positions_N[part], outputs, cache))
            if on_logits is not None:
                on_logits(begin, logits[0])
                logits = [logits[0][-1:]] if part.stop >= len(tokens_N) else []
        return logits[0] if len(logits) == 1 else np.concatenate(logits)

    def decode(
        self,
        slots_S: NDArray[np.int64],
        tokens_S: NDArray[np.int64],
        positions_S: NDArray[np.int64],
        cache: CpuCache,
    ) -> NDArray[np.float32]:
        """The keys and values of a shared prompt are read once for all its slots."""
        order_S, *sharing = cache.sharing(_within("slots", slots_S, cache.n_slots))
        cache.tables.extend(slots_S, positions_S)
        return self._run(tokens_S[order_S], slots_S[order_S], positions_S[order_S], np.argsort(order_S), cache, sharing)

    def _run(
        self,
        tokens_N: Any,
        slots_N: Any,
        positions_N: Any,
        outputs: Any,
        cache: CpuCache,
        sharing: Sequence[NDArray[np.int64]] | None = None,
    ) -> NDArray[np.float32]:
        """A pass over packed tokens; logits of the `outputs`. Raises ValueError for an index out of bounds."""
        w = self.weights
        tokens = _within("tokens", tokens_N, w.vocab_size)
        slots_at = _within("slots", slots_N, cache.n_slots)
        positions_at = _within("positions", positions_N, min(cache.max_len, w.cos_TD.shape[0]))
        outputs_at = _within("outputs", outputs, len(tokens_N))
        owners, shared = (None, None) if sharing is None else map(cpu_kernels.int64s, sharing)
        logits = np.empty((-(-len(outputs_at) // _ROWS) * _ROWS, w.vocab_size), np.float32)
        cpu_kernels.call(
            "grrm_decode",
            cache.sizes,
            ctypes.c_float(w.norm_epsilon),
            cache.addresses,
            cache.packed,
            tokens,
            slots_at,
            positions_at,
            owners,
            shared,
            ctypes.c_int64(len(tokens)),
            outputs_at,
            ctypes.c_int64(len(outputs_at)),
            cache.tables.blocks_SB,
            cache.keys,
            cache.values,
            logits,
        )
        return logits[: len(outputs_at)]

    def _addresses(self) -> NDArray[np.uint64]:
        """Return the current addresses of the parameters; see `decoder_at` in csrc/bindings/c_api.cpp for the order."""
        w = self.weights
        addresses = [*self._blas]
        addresses += [t.data_ptr() for t in (w.embedding_VH, w.cos_TD, w.signed_sin_TD, w.final_norm, w.lm_head)]
        for layer in w.layers:
            addresses.append(layer.input_norm.data_ptr())
            addresses += [at for p in (*layer.attention_in, layer.attention_out) for at in _pointers(p)]
            addresses += [norm.data_ptr() for norm in layer.head_norms] if layer.head_norms else [0, 0]
            addresses.append(layer.mlp_norm.data_ptr())
            addresses += [at for p in (*layer.mlp_in, layer.mlp_out) for at in _pointers(p)]
        return np.array(addresses, dtype=np.uint64)


def _within(name: str, values: Any, limit: int) -> NDArray[np.int64]:
    array = cpu_kernels.int64s(values)
    if len(array) and not 0 <= array.min() <= array.max() < limit:
        raise ValueError(f"{name} from {array.min()} to {array.max()} where {limit} is the limit")
    return array


def _n_multiplied(w: DecoderWeights) -> int:
    """Number of elements of the matrices of all products."""
    return sum(int(p.weight.size) for layer in w.layers for p in layer.projections) + int(w.lm_head.size)


def _pointers(projection: Projection) -> tuple[int, int]:
    return projection.weight.data_ptr(), 0 if projection.bias is None else projection.bias.data_ptr()


def _unsupported_reason(w: DecoderWeights) -> str | None:
    if w.n_parts > 1:
        return "tensor ranks divide its layers"
    if w.layers[0].experts is not None:
        return "it has experts"
    if any(len(layer.attention_in) == 1 or len(layer.mlp_in) == 1 for layer in w.layers):
        return "its projections are fused"
    for name, tensor, shape in _expected(w):
        if list(tensor.shape) != shape:
            return f"{name} has the shape {list(tensor.shape)}, not {shape}"
        if tensor.dtype != paddle.float32 or not tensor.place.is_cpu_place() or not tensor.is_contiguous():
            return f"{name} is not contiguous float32 on the CPU"
    return None


def _expected(w: DecoderWeights) -> list[tuple[str, Tensor, list[int]]]:
    """Every parameter with the shape that the kernel expects."""
    vocabulary, hidden = w.vocab_size, w.embedding_VH.shape[1]
    queries, keys, inner = w.n_heads * w.head_dim, w.n_kv_heads * w.head_dim, w.layers[0].mlp_in[0].weight.shape[1]
    head = [vocabulary, hidden] if w.lm_head_is_transposed else [hidden, vocabulary]
    expected = [
        ("the embedding", w.embedding_VH, [vocabulary, hidden]),
        ("the head", w.lm_head, head),
        ("the last norm", w.final_norm, [hidden]),
        ("the table of cosines", w.cos_TD, [w.cos_TD.shape[0], w.head_dim]),
        ("the table of sines", w.signed_sin_TD, [w.cos_TD.shape[0], w.head_dim]),
    ]
    for number, layer in enumerate(w.layers):
        sizes = [(hidden, queries), (hidden, keys), (hidden, keys), (queries, hidden)]
        sizes += [(hidden, inner), (hidden, inner), (inner, hidden)]
        for projection, (n_in, n_out) in zip(layer.projections, sizes, strict=True):
            expected.append((f"a weight of layer {number}", projection.weight, [n_in, n_out]))
            if projection.bias is not None:
                expected.append((f"a bias of layer {number}", projection.bias, [n_out]))
        expected += [(f"a norm of layer {number}", norm, [hidden]) for norm in (layer.input_norm, layer.mlp_norm)]
        expected += [(f"a norm of heads of layer {number}", norm, [w.head_dim]) for norm in layer.head_norms or ()]
    return expected
