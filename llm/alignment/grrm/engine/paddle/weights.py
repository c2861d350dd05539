"""References to a PaddleNLP model's parameters, as the decoders read them; nothing is copied.

With tensor parallelism these are the parameters of this rank's shard: some of the heads, a slice of the feed-forward
layer and of the vocabulary. `look_up`, `project_out` and `all_logits` are then collectives of the tensor ranks, and
return the same values as in one process with the full model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import Tensor

from grrm.errors import UserError
from grrm.parallel.tensor_ranks import gather_parts, look_up_part, sum_parts

_DECODERS = {"Qwen2ForCausalLM": "qwen2", "LlamaForCausalLM": "llama"}


@dataclass(frozen=True, slots=True)
class Projection:
    """y = x @ weight (+ bias); weight is (in, out)."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer. `attention_in` is (q, k, v) or one fused projection; `mlp_in` (gate, up) or one fused.

    `experts` is a mixture of them, called in the place of `mlp_in` and `mlp_out`, which are its shared expert's.
    """

    input_norm: Tensor
    attention_in: tuple[Projection, ...]
    attention_out: Projection
    mlp_norm: Tensor
    mlp_in: tuple[Projection, ...]
    mlp_out: Projection
    head_norms: tuple[Tensor, Tensor] | None  # of each head's queries and keys, before they are rotated
    experts: Any = None

    @property
    def projections(self) -> tuple[Projection, ...]:
        """All but those of experts."""
        return (*self.attention_in, self.attention_out, *self.mlp_in, self.mlp_out)


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """All parameters of a causal decoder and the numbers its forward pass needs.

    The tensors are the model's own Parameter objects: an optimizer step or `set_state_dict` on the model is
    seen by the next `generate`. `cos_TD` and `signed_sin_TD` are rotary tables over positions. Heads are those of this
    process, number `part` of the `n_parts` that a layer is divided into.
    """

    embedding_VH: Tensor
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor
    lm_head: Tensor
    lm_head_is_transposed: bool  # (V, H) where tied to the embedding, else (H, V)
    cos_TD: Tensor
    signed_sin_TD: Tensor
    n_heads: int
    n_kv_heads: int
    head_dim: int
    norm_epsilon: float
    max_positions: int
    vocab_size: int
    part: int = 0
    n_parts: int = 1

    def cache_bytes(self, positions: int) -> int:
        """Size of the keys and values of a sequence over all layers."""
        numbers = positions * len(self.layers) * self.n_kv_heads * self.head_dim
        return 2 * numbers * self.embedding_VH.element_size()

    def look_up(self, tokens_N: Tensor) -> Tensor:
        """The embeddings (N, H) of tokens."""
        n_local = self.embedding_VH.shape[0]
        if n_local == self.vocab_size:
            return F.embedding(tokens_N, self.embedding_VH)
        return sum_parts(look_up_part(self.embedding_VH, tokens_N, self.part * n_local))

    def project_out(self, x: Tensor, projection: Projection) -> Tensor:
        """The output of a layer's attention or MLP, all-reduced over the shards of its inputs."""
        if self.n_parts == 1:
            return project(x, projection)
        summed = sum_parts(paddle.matmul(x, projection.weight))
        return summed if projection.bias is None else summed + projection.bias

    def all_logits(self, normed_NH: Tensor) -> Tensor:
        """The logits (N, V) of normed hidden states."""
        logits_NV = paddle.matmul(normed_NH, self.lm_head, transpose_y=self.lm_head_is_transposed)
        if logits_NV.shape[1] == self.vocab_size:
            return logits_NV
        return paddle.concat(gather_parts(logits_NV), axis=1)


def project(x: Tensor, projection: Projection) -> Tensor:
    """y = x @ weight (+ bias)."""
    if projection.bias is None:
        return paddle.matmul(x, projection.weight)
    return F.linear(x, projection.weight, projection.bias)


def collect_weights(model: Any) -> DecoderWeights:
    """The parameters of a PaddleNLP `Qwen2ForCausalLM` or `LlamaForCausalLM`, or of our classes below Qwen2's.

    Raises UserError for another architecture, or a setting the decoder does not implement.
    """
    base = getattr(model, _base_name(model))
    config = model.config
    _refuse_unsupported(config)
    n_parts = max(config.tensor_parallel_degree, 1)
    cos_TD, signed_sin_TD = _rotary_tables(base.layers[0].self_attn.rotary_emb, base.embed_tokens.weight.dtype)
    return DecoderWeights(
        embedding_VH=base.embed_tokens.weight,
        layers=tuple(_layer_weights(layer) for layer in base.layers),
        final_norm=base.norm.weight,
        lm_head=model.lm_head.weight,
        lm_head_is_transposed=bool(model.lm_head.transpose_y),
        cos_TD=cos_TD,
        signed_sin_TD=signed_sin_TD,
        n_heads=config.num_attention_heads // n_parts,
        n_kv_heads=config.num_key_value_heads // n_parts,
        head_dim=base.layers[0].self_attn.head_dim,
        norm_epsilon=config.rms_norm_eps,
        max_positions=config.max_position_embeddings,
        vocab_size=config.vocab_size,
        part=config.tensor_parallel_rank if n_parts > 1 else 0,
        n_parts=n_parts,
    )


def _base_name(model: Any) -> str:
    for cls in type(model).__mro__:
        if cls.__name__ in _DECODERS:
            return _DECODERS[cls.__name__]
    raise UserError(
        f"The Paddle engine cannot generate with {type(model).__name__}: give it one of {', '.join(_DECODERS)}."
    )


def _refuse_unsupported(config: Any) -> None:
    problems = {
        "alibi=True": getattr(config, "alibi", False),
        "use_long_sequence_strategies=True": getattr(config, "use_long_sequence_strategies", False),
        "rope_scaling_type='dynamic_ntk'": config.rope_scaling_type == "dynamic_ntk",
        f"hidden_act='{getattr(config, 'hidden_act', 'silu')}'": getattr(config, "hidden_act", "silu") != "silu",
    }
    for setting, refused in problems.items():
        if refused:
            raise UserError(f"The Paddle engine does not support {setting}: change it in the model's config.json.")


def _layer_weights(layer: Any) -> LayerWeights:
    attention, mlp = layer.self_attn, getattr(layer.mlp, "shared_expert", layer.mlp)
    qkv = ("qkv_proj",) if attention.fuse_attention_qkv else ("q_proj", "k_proj", "v_proj")
    gate_up = ("gate_up_fused_proj",) if mlp.fuse_attention_ffn else ("gate_proj", "up_proj")
    return LayerWeights(
        input_norm=layer.input_layernorm.weight,
        attention_in=tuple(_projection(getattr(attention, name)) for name in qkv),
        attention_out=_projection(attention.o_proj),
        mlp_norm=layer.post_attention_layernorm.weight,
        mlp_in=tuple(_projection(getattr(mlp, name)) for name in gate_up),
        mlp_out=_projection(mlp.down_proj),
        head_norms=(attention.q_norm.weight, attention.k_norm.weight) if hasattr(attention, "q_norm") else None,
        experts=None if mlp is layer.mlp else layer.mlp,
    )


def _projection(linear: Any) -> Projection:
    return Projection(linear.weight, linear.bias)


def _rotary_tables(rotary: Any, dtype: paddle.dtype) -> tuple[Tensor, Tensor]:
    """The model's own tables (so every static RoPE scaling is included); the sine's first half negated.

    rotate_half(x) * sin == swap_halves(x) * signed_sin, which saves the negation at each step.
    """
    cos_TD = rotary.cos_cached.squeeze([0, 2])
    sin_TD = rotary.sin_cached.squeeze([0, 2])
    half = sin_TD.shape[-1] // 2
    signed_sin_TD = paddle.concat([-sin_TD[:, :half], sin_TD[:, half:]], axis=-1)
    return cos_TD.astype(dtype), signed_sin_TD.astype(dtype)
