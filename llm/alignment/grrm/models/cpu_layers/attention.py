"""Attention with its own softmax, and repeated keys and values whose gradient is summed by a matrix product."""

from __future__ import annotations

import math
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle.autograd import PyLayer

from grrm.models.cpu_kernels import note_needs_grad, only_needed
from grrm.models.cpu_layers import operators
from grrm.models.packing import additive_mask
from grrm.paddlenlp_api.modeling import llama

stock_llama_attention = llama.scaled_dot_product_attention  # before `install` puts ours in its place


class SoftmaxAttention(PyLayer):
    """softmax(q k^T / sqrt(D) + mask) v over [B, H, T, D] queries and [B, H, S, D] keys and values.

    `mask` [B, H, T, S] is additive.
    """

    @staticmethod
    def forward(ctx: Any, q: paddle.Tensor, k: paddle.Tensor, v: paddle.Tensor, mask: paddle.Tensor) -> paddle.Tensor:
        scale = 1.0 / math.sqrt(q.shape[-1])
        scores = paddle.matmul(q * scale, k, transpose_y=True) + mask
        raised = paddle.exp(scores - scores.max(-1, keepdim=True).expand_as(scores))
        weights = raised * (1.0 / _row_sums(raised)).expand_as(raised)
        ctx.scale = scale
        note_needs_grad(ctx, q, k, v, mask)
        ctx.save_for_backward(q, k, v, weights)
        return paddle.matmul(weights, v)

    @staticmethod
    def backward(ctx: Any, grad: paddle.Tensor) -> Any:
        """With weights p: dv = p^T g; ds = p * (g v^T - sum(g v^T * p)); dq = ds k / sqrt(D); dk = ds^T q / sqrt(D).

        The gradient of the mask is ds.
        """
        q, k, v, weights = ctx.saved_tensor()
        pulled = paddle.matmul(grad, v, transpose_y=True) * weights
        grad_scores = pulled - weights * _row_sums(pulled).expand_as(weights)
        grad_q = paddle.matmul(grad_scores, k) * ctx.scale
        grad_k = paddle.matmul(grad_scores, q, transpose_x=True) * ctx.scale
        return only_needed(ctx, grad_q, grad_k, paddle.matmul(weights, grad, transpose_x=True), grad_scores)


def _row_sums(x: paddle.Tensor) -> paddle.Tensor:
    """Sums over the last axis, kept."""
    width = x.shape[-1]
    return paddle.matmul(x.reshape([-1, width]), paddle.ones([width, 1])).reshape([*x.shape[:-1], 1])


class RepeatedHeads(PyLayer):
    """[B, S, K, D] to [B, S, K * n, D], every head n times in a row."""

    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor, n_rep: int) -> paddle.Tensor:
        ctx.n_rep = n_rep
        batch, length, heads, width = x.shape
        return x.unsqueeze(-2).expand([batch, length, heads, n_rep, width]).reshape([batch, length, -1, width])

    @staticmethod
    def backward(ctx: Any, grad: paddle.Tensor) -> paddle.Tensor:
        """The sum over the copies of each head."""
        batch, length, heads, width = grad.shape
        copies = grad.reshape([batch, length, heads // ctx.n_rep, ctx.n_rep, width])
        return paddle.matmul(paddle.ones([1, ctx.n_rep]), copies).squeeze(-2)


def _causal_mask(length: int) -> paddle.Tensor:
    """[1, 1, T, T], 0 where a token may look."""
    return paddle.triu(paddle.full([1, 1, length, length], paddle.finfo(paddle.float32).min), diagonal=1)


def repeat_kv(hidden_states: paddle.Tensor, n_rep: int) -> paddle.Tensor:
    """Keys or values as they are; signature as PaddleNLP's.

    The layers call it before they know which attention follows. The kernels read one key head for several query heads;
    the plain operators need one each, which `attention` makes.
    """
    return hidden_states


def _for_every_query(kv_BTKD: paddle.Tensor, n_heads: int) -> paddle.Tensor:
    n_rep = n_heads // kv_BTKD.shape[2]
    return kv_BTKD if n_rep == 1 else RepeatedHeads.apply(kv_BTKD, n_rep)


def attention(
    query: paddle.Tensor,
    config: Any,
    key: paddle.Tensor,
    value: paddle.Tensor,
    attention_mask: paddle.Tensor | None,
    output_attentions: bool,
    attn_mask_startend_row_indices: paddle.Tensor | None = None,
    training: bool = True,
    sequence_parallel: bool = False,
    **options: Any,
) -> Any:
    """Attention of queries [B, T, H, D] over keys and values [B, S, K, D] with H a multiple of K.

    The signature is PaddleNLP's, with `attention_ranges` in place of flash masks.

    Without ranges the mask [B, 1, T, T] is additive, and no mask is the causal one. Returning the attention weights,
    or dropping some of them, asks for the plain operators and a mask.
    """
    attention_ranges_3BT = attn_mask_startend_row_indices
    batch, length, heads, width = query.shape
    dropout = getattr(config, "attention_dropout", 0.0) if training else 0.0
    shape = [batch * length, heads * width] if sequence_parallel else [batch, length, heads * width]
    if attention_ranges_3BT is not None and not (output_attentions or dropout):
        return operators.attention(query, key, value, attention_ranges_3BT).reshape(shape)
    if attention_ranges_3BT is not None:
        attention_mask = additive_mask(attention_ranges_3BT)
    key, value = (_for_every_query(tensor, heads) for tensor in (key, value))
    q, k, v = (x.transpose([0, 2, 1, 3]) for x in (query, key, value))
    mask = _causal_mask(length) if attention_mask is None else attention_mask.reshape([batch, 1, length, -1])
    mask = mask.expand([batch, heads, length, k.shape[2]])
    weights = None
    if output_attentions or dropout:
        scores = paddle.matmul(q * (1.0 / math.sqrt(width)), k, transpose_y=True) + mask
        weights = F.dropout(F.softmax(scores, axis=-1), p=dropout, training=training)
        mixed = paddle.matmul(weights, v)
    else:
        mixed = SoftmaxAttention.apply(q, k, v, mask)
    mixed = mixed.transpose([0, 2, 1, 3]).reshape(shape)
    return (mixed, weights) if output_attentions else mixed


def llama_attention(
    query: paddle.Tensor,
    config: Any,
    key: paddle.Tensor,
    value: paddle.Tensor,
    attention_mask: paddle.Tensor | None,
    output_attentions: bool,
    alibi: paddle.Tensor | None = None,
    attn_mask_startend_row_indices: paddle.Tensor | None = None,
    sequence_parallel: bool = False,
    reshard_layer: Any = None,
    **options: Any,
) -> Any:
    """`attention` with the signature of PaddleNLP's Llama, which knows no dropout; its own where it knows more."""
    ranges = attn_mask_startend_row_indices
    if alibi is not None or reshard_layer is not None:
        key, value = (_for_every_query(tensor, query.shape[2]) for tensor in (key, value))
        common = (query, config, key, value, attention_mask, output_attentions)
        return stock_llama_attention(*common, alibi, ranges, sequence_parallel, reshard_layer, **options)
    return attention(
        query, config, key, value, attention_mask, output_attentions, ranges, False, sequence_parallel, **options
    )
