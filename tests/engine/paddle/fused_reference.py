"""Paddle's block attention written again in NumPy, from what its CUDA sources do, to run on a CPU.

Stricter than the operator where that would read or write what it should not: every such call fails here. All calls go
through the signature of the real function.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import paddle
from paddle import Tensor
from paddle.incubate.nn.functional import block_multihead_attention, fused_rms_norm

from grrm.engine.paddle.gpu_decoder import FusedOperators

_INTEGERS = (
    "seq_lens_encoder",
    "seq_lens_decoder",
    "seq_lens_this_time",
    "padding_offsets",
    "cum_offsets",
    "cu_seqlens_q",
    "cu_seqlens_k",
    "block_tables",
)
_UNUSED = ("pre_key_cache", "pre_value_cache", "qkv_out_scale", "qkv_bias", "mask", "tgt_mask", "out_shift")


def reference_operators() -> FusedOperators:
    """Block attention as below, norm and gate as they run on a CPU; for float32 models there, of any head size."""
    return FusedOperators(
        block_attention=block_attention,
        rms_norm=rms_norm,
        swiglu=paddle.nn.functional.swiglu,
        device="cpu",
        dtypes=(paddle.float32,),
        head_dims=(),
    )


def rms_norm(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """The norm of x plus the residual, and that sum; takes what `fused_rms_norm` takes.

    Paddle's own kernel for a CPU runs only where there is AVX-512.
    """
    given = inspect.signature(fused_rms_norm).bind(*args, **kwargs).arguments
    total = given["x"] if given.get("residual") is None else given["x"] + given["residual"]
    mean_square = (total * total).mean(-1, keepdim=True)
    return total * paddle.rsqrt(mean_square + given["epsilon"]) * given["norm_weight"], total


def block_attention(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rotates, writes the cache and attends; takes what `block_multihead_attention` takes."""
    given = inspect.signature(block_multihead_attention).bind(*args, **kwargs)
    given.apply_defaults()
    call = _Call(given.arguments)
    call.check()
    out = call.run()
    qkv, keys, values = (given.arguments[name] for name in ("qkv", "key_cache", "value_cache"))
    keys.set_value(call.keys)
    values.set_value(call.values)
    qkv.set_value(np.full(qkv.shape, np.nan, np.float32))  # the operator rotates in place: nobody may use it again
    return paddle.to_tensor(out), qkv, keys, values


class _Call:
    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.ints = {name: given[name].numpy() for name in _INTEGERS}
        self.keys, self.values = given["key_cache"].numpy(), given["value_cache"].numpy()
        self.kv_heads, self.block, self.dim = self.keys.shape[1:]
        self.longest, self.n_rows = given["max_seq_len"], len(self.ints["cum_offsets"])
        qkv = given["qkv"].numpy()
        self.heads = qkv.shape[1] // self.dim - 2 * self.kv_heads
        per_token = qkv.reshape(len(qkv), -1, self.dim)
        ends = [self.heads, self.heads + self.kv_heads]
        self.queries, self.new_keys, self.new_values = np.split(per_token, ends, axis=1)

    def check(self) -> None:
        given, ints = self.given, self.ints
        assert all(given[name] is None for name in _UNUSED)
        assert all(given[name].dtype == paddle.int32 for name in _INTEGERS)
        assert given["qkv"].dtype == given["key_cache"].dtype == given["value_cache"].dtype
        assert self.keys.shape == self.values.shape
        assert self.block == given["block_size"]
        assert self.block in (1, 32, 64, 128)
        assert self.heads > 0
        assert self.heads % self.kv_heads == 0
        # Only with the style of NeoX does a step take its angles from the table.
        assert given["use_neox_style"]
        assert given["rope_emb"].dtype == paddle.float32
        assert given["rope_emb"].shape[:2] + given["rope_emb"].shape[3:] == [2, 1, 1, self.dim]
        for name, lengths in (("max_enc_len_this_time", "encoder"), ("max_dec_len_this_time", "decoder")):
            maximum = given[name]
            assert maximum.place.is_cpu_place()
            assert maximum.dtype == paddle.int32
            assert maximum.numpy().tolist() == [ints[f"seq_lens_{lengths}"].max()]
        assert all(len(ints[name]) == self.n_rows for name in (*_INTEGERS[:3], "block_tables"))
        assert len(ints["padding_offsets"]) == len(self.queries) == ints["seq_lens_this_time"].sum()
        wanted = np.cumsum([0, *ints["seq_lens_this_time"]])
        assert (ints["cu_seqlens_q"] == wanted).all()
        assert (ints["cu_seqlens_k"] == wanted).all()

    def run(self) -> np.ndarray:
        out = np.full(self.queries.shape, np.nan, np.float32)  # rows that no sequence owns stay as they were allocated
        self.prompts(out)
        for row in np.flatnonzero(self.ints["seq_lens_decoder"]):
            self.step(row, out)
        return out.reshape(len(out), -1)

    def prompts(self, out: np.ndarray) -> None:
        """Tokens find their sequence and position in a padded array; they see the tokens of this call only."""
        spans: dict[int, list[int]] = {}
        for token, padding in enumerate(self.ints["padding_offsets"]):
            row, position = divmod(token + int(padding), self.longest)
            if self.ints["seq_lens_encoder"][row] == 0:
                continue
            self.rotate(self.queries[token], position)
            self.rotate(self.new_keys[token], position)
            self.write(row, position, token)
            spans.setdefault(row, []).append(token)
        for row, tokens in spans.items():
            begin, end = self.ints["cu_seqlens_q"][row : row + 2]
            assert tokens == list(range(begin, end))
            for token in tokens:
                seen = slice(begin, token + 1)
                out[token] = self.attend(self.queries[token], self.new_keys[seen], self.new_values[seen])

    def step(self, row: int, out: np.ndarray) -> None:
        assert self.ints["seq_lens_this_time"][row] == 1
        token = row * self.longest - self.ints["cum_offsets"][row]
        position = int(self.ints["seq_lens_decoder"][row])
        self.rotate(self.queries[token], position)
        self.rotate(self.new_keys[token], position)
        self.write(row, position, token)
        places = [self.place(row, before) for before in range(position + 1)]
        keys, values = (np.stack([stored[b, :, i] for b, i in places]) for stored in (self.keys, self.values))
        out[token] = self.attend(self.queries[token], keys, values)

    def rotate(self, heads_HD: np.ndarray, position: int) -> None:
        cos, sin = self.given["rope_emb"].numpy()[:, 0, position, 0]
        half = self.dim // 2
        turned = np.concatenate([-heads_HD[:, half:], heads_HD[:, :half]], axis=1)
        heads_HD[:] = heads_HD * cos + turned * sin

    def place(self, row: int, position: int) -> tuple[int, int]:
        block = int(self.ints["block_tables"][row, position // self.block])
        assert 0 <= block < len(self.keys), f"position {position} of sequence {row} has no block"
        return block, position % self.block

    def write(self, row: int, position: int, token: int) -> None:
        block, index = self.place(row, position)
        self.keys[block, :, index], self.values[block, :, index] = self.new_keys[token], self.new_values[token]

    def attend(self, queries_HD: np.ndarray, keys_LKD: np.ndarray, values_LKD: np.ndarray) -> np.ndarray:
        group = self.heads // self.kv_heads
        keys, values = (np.repeat(x.astype(np.float64), group, axis=1) for x in (keys_LKD, values_LKD))
        scores_HL = np.einsum("hd,lhd->hl", queries_HD, keys) / np.sqrt(self.dim)
        weights_HL = np.exp(scores_HL - scores_HL.max(axis=1, keepdims=True))
        return np.einsum("hl,lhd->hd", weights_HL / weights_HL.sum(axis=1, keepdims=True), values)


def padded(prompts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Prompts as one right-padded table, and their lengths, as decoders take them."""
    tokens_PT = np.zeros((len(prompts), max(map(len, prompts))), np.int64)
    for tokens_T, prompt in zip(tokens_PT, prompts, strict=True):
        tokens_T[: len(prompt)] = prompt
    return tokens_PT, np.array([len(prompt) for prompt in prompts])
