"""The decoder in Paddle's fused GPU operators: prompts packed without padding, a paged KV cache.

The behaviour of the operators was taken from their CUDA sources: the header in Paddle 3.3.1, and its callers on GitHub.
The code around them is also tested on a CPU, with a block attention in NumPy written from those sources
(tests/engine/paddle/fused_reference.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from numpy.typing import NDArray
from paddle import Tensor
from paddle.incubate.nn.functional import block_multihead_attention, fused_rms_norm

from grrm.engine.block_cache import BLOCK, BlockCache, blocks_within, n_blocks
from grrm.engine.paddle.decoder import OnLogits, positions_of_a_part
from grrm.engine.paddle.weights import DecoderWeights, LayerWeights, collect_weights, project


@dataclass(frozen=True, slots=True)
class FusedOperators:
    """Three functions with the signatures of Paddle's, and the models that they run.

    `block_attention` is `block_multihead_attention`: it rotates queries and keys, writes keys and values into blocks
    of a cache and attends. `device` is "gpu" or "cpu"; `head_dims` is empty where any will do.
    """

    block_attention: Callable[..., tuple[Tensor, ...]]
    rms_norm: Callable[..., Any]
    swiglu: Callable[..., Tensor]
    device: str
    dtypes: tuple[paddle.dtype, ...]
    head_dims: tuple[int, ...]


def paddle_operators() -> FusedOperators:
    """Paddle's own, with the types and head sizes that its CUDA kernel of block attention has an instance for."""
    return FusedOperators(
        block_attention=block_multihead_attention,
        rms_norm=fused_rms_norm,
        swiglu=F.swiglu,
        device="gpu",
        dtypes=(paddle.bfloat16, paddle.float16),
        head_dims=(32, 64, 96, 128),
    )


def attention_arguments(
    cached_S: NDArray[np.int64], new_S: NDArray[np.int64], tables_SK: NDArray[np.int32], device: Any
) -> dict[str, Any]:
    """Arguments of block attention for a batch whose new tokens are packed one sequence after the other.

    Sequence i has `cached_S[i]` tokens in the blocks `tables_SK[i]` and `new_S[i]` more in this pass: a whole prompt
    where nothing is cached (the operator's "encoder"), one token where something is (its "decoder"). There is no third
    case, so a prompt cannot continue after a cached prefix.
    """
    prompts_S = np.where(cached_S == 0, new_S, 0)
    longest = int(new_S.max())
    # The operator finds token t of the packed row at t + padding_offsets[t] of a padded (S, longest) array.
    padding_S = np.cumsum(longest - new_S) - (longest - new_S)
    ends_S = np.concatenate([[0], np.cumsum(new_S)])
    arrays = {
        "seq_lens_encoder": prompts_S,
        "seq_lens_decoder": cached_S,
        "seq_lens_this_time": new_S,
        "padding_offsets": np.repeat(padding_S, new_S),
        "cum_offsets": padding_S,
        "cu_seqlens_q": ends_S,
        "cu_seqlens_k": ends_S,
        "block_tables": tables_SK,
    }
    # These two are read on the host. Given, they save the operator a wait for the device in every layer; the maxima
    # are known here, so `blha_get_max_len`, which would wait once, is not needed.
    maxima = {"max_enc_len_this_time": prompts_S.max(), "max_dec_len_this_time": cached_S.max()}
    return {
        **{name: paddle.to_tensor(array.astype(np.int32), place=device) for name, array in arrays.items()},
        **{name: paddle.to_tensor([int(n)], "int32", place=paddle.CPUPlace()) for name, n in maxima.items()},
        "max_seq_len": longest,
    }


class GpuDecoder:
    """Forward pass over a PaddleNLP model's own parameters (Qwen2, Qwen3 or Llama in bfloat16 or float16 on a GPU).

    The same calls as `PlainDecoder`, but for the logits, which stay on the device. Raises UserError, on construction,
    for a model that no decoder implements, and ValueError for one that another decoder runs (`unsupported_reason`).
    """

    computes_padding = False

    def __init__(self, model: Any, operators: FusedOperators | None = None) -> None:
        """`operators` replace Paddle's own."""
        self._operators = operators or paddle_operators()
        self.weights: DecoderWeights = collect_weights(model)
        reason = _unsupported_reason(self.weights, self._operators)
        if reason:
            raise ValueError(f"the fused operators cannot run this model: {reason}")
        self._device = self.weights.embedding_VH.place
        self._rope = _rope_table(self.weights)
        following = [*(layer.input_norm for layer in self.weights.layers[1:]), self.weights.final_norm]
        self._layers = list(zip(self.weights.layers, following, strict=True))

    @staticmethod
    def unsupported_reason(model: Any, operators: FusedOperators | None = None) -> str | None:
        """Return the reason that the fused operators cannot run `model`, None if they can."""
        return _unsupported_reason(collect_weights(model), operators or paddle_operators())

    def new_cache(self, n_slots: int, max_len: int, max_bytes: int | None = None) -> BlockCache:
        """An empty cache for `n_slots` sequences of at most `max_len` tokens, with fewer blocks beyond `max_bytes`."""
        w = self.weights
        n_all = blocks_within(n_slots, max_len, self.cache_bytes(BLOCK), max_bytes)
        return BlockCache(len(w.layers), n_slots, w.n_kv_heads, max_len, w.head_dim, w.embedding_VH.dtype, n_all)

    def cache_bytes(self, max_len: int) -> int:
        return self.weights.cache_bytes(n_blocks(max_len) * BLOCK)

    def prefill(
        self,
        tokens_PT: NDArray[np.int64],
        lengths_P: NDArray[np.int64],
        cache: BlockCache,
        slots_S: NDArray[np.int64],
        sources_S: NDArray[np.int64],
        on_logits: OnLogits | None = None,
    ) -> Tensor:
        """A prompt is computed in the first of its slots; the others share its full blocks and copy the last one.

        The blocks that the slots held before are freed.
        """
        tables = cache.tables
        first_P = slots_S[np.unique(sources_S, return_index=True)[1]]
        for slot, length in zip(first_P.tolist(), lengths_P.tolist(), strict=True):
            tables.begin(slot, length)
        tokens_N = tokens_PT[np.arange(tokens_PT.shape[1]) < lengths_P[:, None]]
        logits_PV = self._run(tokens_N, np.zeros_like(lengths_P), lengths_P, first_P, cache, on_logits)
        others = np.flatnonzero(first_P[sources_S] != slots_S)
        shares = [(int(slots_S[i]), int(first_P[sources_S[i]]), int(lengths_P[sources_S[i]])) for i in others]
        cache.copy(list(chain.from_iterable(tables.share(*share) for share in shares)))
        return logits_PV

    def decode(
        self,
        slots_S: NDArray[np.int64],
        tokens_S: NDArray[np.int64],
        positions_S: NDArray[np.int64],
        cache: BlockCache,
    ) -> Tensor:
        """Raises ValueError for a position outside 1 to `max_len` - 1: before it there is a prompt."""
        cache.tables.extend(slots_S, positions_S)
        return self._run(tokens_S, positions_S, np.ones_like(positions_S), slots_S, cache)

    @paddle.no_grad()
    def _run(
        self,
        tokens_N: NDArray[np.int64],
        cached_S: NDArray[np.int64],
        new_S: NDArray[np.int64],
        slots_S: NDArray[np.int64],
        cache: BlockCache,
        on_logits: OnLogits | None = None,
    ) -> Tensor:
        """One pass over packed tokens, `new_S` of every slot after `cached_S`; float32 logits of each slot's last."""
        batch = attention_arguments(cached_S, new_S, cache.tables.blocks_SB[slots_S], self._device)
        w = self.weights
        hidden = w.look_up(self._on_device(tokens_N))
        normed = self._norm(hidden, w.layers[0].input_norm)
        for index, (layer, next_norm) in enumerate(self._layers):
            qkv = self._packed_qkv(normed, layer)
            attended = self._attend(qkv, cache.keys[index], cache.values[index], batch)
            normed, hidden = self._add_and_norm(w.project_out(attended, layer.attention_out), hidden, layer.mlp_norm)
            normed, hidden = self._add_and_norm(self._mlp(normed, layer), hidden, next_norm)
        if on_logits is not None:
            part = positions_of_a_part(w.vocab_size)
            for begin in range(0, len(tokens_N), part):
                on_logits(begin, w.all_logits(normed[begin : begin + part]).astype("float32"))
        if len(tokens_N) > len(new_S):
            normed = paddle.gather(normed, self._on_device(np.cumsum(new_S) - 1))
        return w.all_logits(normed).astype("float32")

    def _packed_qkv(self, normed: Tensor, layer: LayerWeights) -> Tensor:
        """(N, all query heads + all key heads + all value heads)."""
        projected = [project(normed, projection) for projection in layer.attention_in]
        for index, norm in enumerate(layer.head_norms or ()):
            heads = projected[index].reshape([-1, self.weights.head_dim])
            projected[index] = self._norm(heads, norm).reshape([normed.shape[0], -1])
        if len(projected) == 1:  # fused: every kv head's queries stand beside its key and value
            w = self.weights
            heads = projected[0].reshape([normed.shape[0], w.n_kv_heads, -1, w.head_dim])
            parts = heads[:, :, :-2], heads[:, :, -2:-1], heads[:, :, -1:]
            projected = [part.reshape([normed.shape[0], -1]) for part in parts]
        return paddle.concat(projected, axis=-1)

    def _attend(self, qkv: Tensor, keys: Tensor, values: Tensor, batch: dict[str, Any]) -> Tensor:
        # The NeoX style rotates the two halves of a head against each other, as these models do, and reads its angles
        # from the table in prefill and decode alike; the other style computes them from a theta in decode.
        options = {"rope_emb": self._rope, "block_size": BLOCK, "use_neox_style": True}
        return self._operators.block_attention(qkv, keys, values, **batch, **options)[0]

    def _mlp(self, normed: Tensor, layer: LayerWeights) -> Tensor:
        if layer.experts is not None:
            return layer.experts(normed)
        gated = self._operators.swiglu(*(project(normed, projection) for projection in layer.mlp_in))
        return self.weights.project_out(gated, layer.mlp_out)

    def _norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return self._operators.rms_norm(hidden, weight, None, self.weights.norm_epsilon, 1)[0]

    def _add_and_norm(self, added: Tensor, hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The norm of the sum, and the sum."""
        normed, total = self._operators.rms_norm(added, weight, None, self.weights.norm_epsilon, 1, residual=hidden)[:2]
        return normed, total

    def _on_device(self, array: NDArray[np.int64]) -> Tensor:
        return paddle.to_tensor(array, place=self._device)


def _rope_table(w: DecoderWeights) -> Tensor:
    """Cosines and sines (2, 1, positions, 1, head dim) in float32; both halves of a head have the same angles."""
    half = w.head_dim // 2
    cos_TD, signed_sin_TD = w.cos_TD.astype("float32"), w.signed_sin_TD.astype("float32")
    sin_TD = paddle.concat([-signed_sin_TD[:, :half], signed_sin_TD[:, half:]], axis=-1)
    return paddle.stack([cos_TD, sin_TD]).reshape([2, 1, w.cos_TD.shape[0], 1, w.head_dim])


def _unsupported_reason(w: DecoderWeights, operators: FusedOperators) -> str | None:
    parameters = _parameters(w)
    on_device = {"gpu": "is_gpu_place", "cpu": "is_cpu_place"}[operators.device]
    if not all(getattr(parameter.place, on_device)() for parameter in parameters):
        return f"its parameters are not all on the {operators.device.upper()}"
    dtypes = sorted({_name(parameter.dtype) for parameter in parameters})
    if len(dtypes) > 1 or parameters[0].dtype not in operators.dtypes:
        supported = " or ".join(_name(dtype) for dtype in operators.dtypes)
        return f"its parameters are {' and '.join(dtypes)}, not all {supported}"
    if operators.head_dims and w.head_dim not in operators.head_dims:
        return f"its heads are {w.head_dim} wide, not one of {', '.join(map(str, operators.head_dims))}"
    return None


def _parameters(w: DecoderWeights) -> list[Tensor]:
    parameters = [w.embedding_VH, w.lm_head, w.final_norm]
    for layer in w.layers:
        parameters += [layer.input_norm, layer.mlp_norm, *(layer.head_norms or ())]
        parameters += [projection.weight for projection in layer.projections]
        parameters += [projection.bias for projection in layer.projections if projection.bias is not None]
    return parameters


def _name(dtype: paddle.dtype) -> str:
    return str(dtype).removeprefix("paddle.")
