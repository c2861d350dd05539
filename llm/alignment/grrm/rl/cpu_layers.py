"""Faster CPU forms of PaddleNLP layers, equal to the originals up to float rounding.

Two facts of Paddle's CPU back end shape them: an elementwise operator on operands of equal shape is 5 to 30 times
faster than one that broadcasts (so operands are expanded first), and `pow(2)` is 100 times slower than `h * h`.
"""

from __future__ import annotations

import math
from typing import Any

import paddle
import paddle.nn.functional as F
from paddlenlp.transformers.llama import modeling as llama
from paddlenlp.transformers.qwen2 import modeling as qwen2


def rms_norm(self: Any, hidden_states: paddle.Tensor) -> paddle.Tensor:
    """h / sqrt(mean(h^2) + eps) * weight, computed in float32."""
    states = hidden_states.astype("float32")
    inverse = paddle.rsqrt((states * states).mean(-1, keepdim=True) + self.variance_epsilon)
    return (states * inverse.expand_as(states)).astype(self.weight.dtype) * self.weight.expand_as(states)


def rotate(q: paddle.Tensor, k: paddle.Tensor, cos: paddle.Tensor, sin: paddle.Tensor, position_ids: Any) -> Any:
    """Rotary embedding of queries and keys [B, T, heads, D]; `position_ids` None means 0, 1, 2, …"""
    width = q.shape[-1]
    cos, sin = (table.reshape([-1, width]) for table in (cos, sin))
    if position_ids is None:
        cos, sin = (table[: q.shape[1]].reshape([1, -1, 1, width]) for table in (cos, sin))
    else:
        cos, sin = (table[position_ids].unsqueeze(2) for table in (cos, sin))
    return tuple(x * cos.expand_as(x) + _rotate_half(x) * sin.expand_as(x) for x in (q, k))


def _rotate_half(x: paddle.Tensor) -> paddle.Tensor:
    half = x.shape[-1] // 2
    return paddle.concat([-x[..., half:], x[..., :half]], axis=-1)


def attention(
    query: paddle.Tensor,
    config: Any,
    key: paddle.Tensor,
    value: paddle.Tensor,
    attention_mask: paddle.Tensor | None,
    output_attentions: bool,
    *extras: Any,
    training: bool = True,
    sequence_parallel: bool = False,
    **options: Any,
) -> Any:
    """Causal attention over [B, T, heads, D] with an additive mask [B, 1, T, S]; signature as PaddleNLP's."""
    batch, length, heads, width = query.shape
    q, k, v = (x.transpose([0, 2, 1, 3]) for x in (query, key, value))
    scores = paddle.matmul(q * (1.0 / math.sqrt(width)), k, transpose_y=True)
    mask = qwen2.get_triangle_upper_mask(scores) if attention_mask is None else attention_mask
    weights = F.softmax((scores + mask.expand_as(scores)).astype("float32"), axis=-1).astype(query.dtype)
    dropout = getattr(config, "attention_dropout", 0.0)
    if training and dropout:
        weights = F.dropout(weights, p=dropout, training=True)
    mixed = paddle.matmul(weights, v).transpose([0, 2, 1, 3])
    shape = [batch * length, heads * width] if sequence_parallel else [batch, length, heads * width]
    return (mixed.reshape(shape), weights) if output_attentions else mixed.reshape(shape)


def swiglu(gate: paddle.Tensor, up: paddle.Tensor | None = None) -> paddle.Tensor:
    """silu(gate) * up; one fused tensor is split in halves."""
    if up is None:
        gate, up = gate.chunk(2, axis=-1)
    return F.silu(gate) * up


def use_cpu_layers() -> None:
    """Install the CPU forms for models built from here on; does nothing when a GPU is in use."""
    if not paddle.get_device().startswith("cpu"):
        return
    qwen2.Qwen2RMSNorm.forward = rms_norm
    llama.LlamaRMSNorm.forward = rms_norm
    for modeling in (qwen2, llama):
        modeling.apply_rotary_pos_emb = rotate
        modeling.fusion_ops.swiglu = swiglu
    qwen2.scaled_dot_product_attention = attention
