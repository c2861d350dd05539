"""Qwen3 (dense), which PaddleNLP 3.0.0b4 does not have: its Qwen2 with another attention (arXiv:2505.09388, section 2).

Queries and keys of each head are normalised before they are rotated, projections have no bias, and a head may be wider
than hidden_size / num_attention_heads. Parameters have the names of Qwen2's, below `qwen2.`.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import paddle
from paddle import nn
from paddle.distributed.fleet.utils import recompute

from grrm.errors import UserError
from grrm.paddlenlp_api.modeling import Qwen2Config, Qwen2ForCausalLM, StateDictNameMapping, linear_utils, qwen2
from grrm.parallel.tensor_ranks import sum_parts

_NORMS = ("q_norm", "k_norm")


class Qwen3Config(Qwen2Config):
    """Qwen2's settings and the width of a head.

    Raises UserError for settings that Qwen3 models could have and none has.
    """

    model_type = "qwen3"

    def __init__(self, head_dim: int | None = None, attention_bias: bool = False, **settings: Any) -> None:
        super().__init__(**settings)
        for name, is_set in (("attention_bias", attention_bias), ("fuse_attention_qkv", self.fuse_attention_qkv)):
            if is_set:
                raise UserError(f"{name} is true, which Qwen3 has no layers for here: set it to false in config.json")
        self.head_dim = head_dim or self.hidden_size // self.num_attention_heads


class Qwen3Attention(qwen2.Qwen2Attention):
    """PaddleNLP's attention of Qwen2 with projections of its own, and norms of queries and keys."""

    def __init__(self, config: Any, layerwise_recompute: bool, skip_recompute_ops: Any) -> None:
        super().__init__(config, layerwise_recompute, skip_recompute_ops)
        self.head_dim = config.head_dim
        queries, keys = (n * config.head_dim for n in (config.num_attention_heads, config.num_key_value_heads))
        into, out = _linears(config)
        self.q_proj = into(config.hidden_size, queries)
        self.k_proj, self.v_proj = into(config.hidden_size, keys), into(config.hidden_size, keys)
        self.o_proj = out(queries, config.hidden_size)
        self.q_norm, self.k_norm = _head_norm(config), _head_norm(config)
        self.rotary_emb = qwen2.Qwen2RotaryEmbedding(
            self.head_dim, max_position_embeddings=config.max_position_embeddings, base=config.rope_theta
        )

    def forward(
        self,
        hidden_states: paddle.Tensor,
        position_ids: paddle.Tensor | None = None,
        past_key_value: tuple[paddle.Tensor, paddle.Tensor] | None = None,
        attention_mask: paddle.Tensor | None = None,
        output_attentions: bool = False,
        use_cache: bool = False,
        attn_mask_startend_row_indices: paddle.Tensor | None = None,
        **_: Any,
    ) -> Any:
        """As Qwen2's, whose arguments these are: the output, then what `output_attentions` and `use_cache` ask for."""
        leading = [-1, self.seq_length] if self.sequence_parallel else hidden_states.shape[:2]
        projected = (self.q_proj(hidden_states), self.k_proj(hidden_states), self.v_proj(hidden_states))
        q, k, v = (x.reshape([*leading, -1, self.head_dim]) for x in projected)
        q, k = self.q_norm(q), self.k_norm(k)
        n_before = 0 if past_key_value is None else past_key_value[0].shape[1]
        cos, sin = self.rotary_emb(v, seq_len=n_before + k.shape[1])
        q, k = qwen2.apply_rotary_pos_emb(q, k, cos, sin, position_ids)
        if past_key_value is not None:
            k, v = (paddle.concat([before, x], axis=1) for before, x in zip(past_key_value, (k, v), strict=True))
        cached = (k, v)
        if not self.config.use_flash_attention:
            k, v = (qwen2.repeat_kv(x, self.num_key_value_groups) for x in cached)
        attend = self.attn_func
        if self.enable_recompute and self.layerwise_recompute and self.recompute_granularity == "core_attn":
            attend = partial(recompute, attend, use_reentrant=self.config.recompute_use_reentrant)
        options = {"training": self.training, "sequence_parallel": self.sequence_parallel}
        ranges = {"attn_mask_startend_row_indices": attn_mask_startend_row_indices}
        mixed = attend(q, self.config, k, v, attention_mask, output_attentions, **ranges, **options)
        mixed, weights = mixed if output_attentions else (mixed, None)
        outputs = (self.o_proj(mixed), *([weights] if output_attentions else []), *([cached] if use_cache else []))
        return outputs if len(outputs) > 1 else outputs[0]


class Qwen3ForCausalLM(Qwen2ForCausalLM):
    """PaddleNLP's Qwen2 with Qwen3's attention."""

    config_class = Qwen3Config

    def __init__(self, config: Qwen3Config) -> None:
        super().__init__(config)
        for layer in self.qwen2.layers:
            layer.self_attn = Qwen3Attention(config, layer.layerwise_recompute, layer.skip_recompute_ops)

    @classmethod
    def _get_name_mappings(cls, config: Qwen3Config) -> list[Any]:
        """Qwen2's parameters by transformers' names, and the norms of heads."""
        mappings = [m for m in super()._get_name_mappings(config) if not m.source_name.endswith("_proj.bias")]
        for layer in range(config.num_hidden_layers):
            for norm in _NORMS:
                name = f"layers.{layer}.self_attn.{norm}.weight"
                mappings.append(StateDictNameMapping(f"model.{name}", f"qwen2.{name}", index=len(mappings)))
        return mappings

    @classmethod
    def _get_tensor_parallel_mappings(cls, config: Qwen3Config, is_split: bool = True) -> dict[str, Any]:
        """The part of each parameter that a tensor rank has: as Qwen2's, without biases."""
        parts = super()._get_tensor_parallel_mappings(config, is_split)
        return {name: part for name, part in parts.items() if not name.endswith(".bias")}


def _linears(config: Any) -> tuple[Any, Any]:
    """The makers of projections into heads and out of them, for this process or one of several tensor ranks."""
    if config.tensor_parallel_degree <= 1:
        return (partial(qwen2.Linear, bias_attr=False),) * 2
    kind = "SequenceParallelLinear" if config.sequence_parallel else "ParallelLinear"
    column, row = (getattr(linear_utils, f"{part}{kind}") for part in ("Column", "Row"))
    return partial(column, has_bias=False, gather_output=False), partial(row, has_bias=False, input_is_parallel=True)


def _head_norm(config: Any) -> nn.Layer:
    """The norm of every head [.., D]. Tensor ranks have it whole and use it for their own heads, so they add up its
    gradients."""
    of_head = copy.copy(config)
    of_head.hidden_size, of_head.sequence_parallel = config.head_dim, False
    norm = qwen2.Qwen2RMSNorm(of_head)
    if config.tensor_parallel_degree > 1:
        norm.weight.register_hook(lambda gradient: sum_parts(gradient.clone()))
    return norm
