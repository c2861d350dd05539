"""The fused operators of Paddle that the GPU decoder calls, what they run, and how they are told about a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from numpy.typing import NDArray
from paddle import Tensor
from paddle.incubate.nn.functional import block_multihead_attention, fused_rms_norm


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
    cached_N: NDArray[np.int64], new_N: NDArray[np.int64], tables_NB: NDArray[np.int32], place: Any
) -> dict[str, Any]:
    """What block attention has to know about a batch whose new tokens are packed one sequence after the other.

    Sequence i has `cached_N[i]` tokens in the blocks `tables_NB[i]` and `new_N[i]` more in this pass: a whole prompt
    where nothing is cached (the operator's "encoder"), one token where something is (its "decoder"). It knows no third
    case, so a prompt cannot go on where another one's blocks end.
    """
    prompts_N = np.where(cached_N == 0, new_N, 0)
    longest = int(new_N.max())
    # The operator finds token t of the packed row at t + padding_offsets[t] of a padded (N, longest) array.
    padding_N = np.cumsum(longest - new_N) - (longest - new_N)
    ends_N = np.concatenate([[0], np.cumsum(new_N)])
    arrays = {
        "seq_lens_encoder": prompts_N,
        "seq_lens_decoder": cached_N,
        "seq_lens_this_time": new_N,
        "padding_offsets": np.repeat(padding_N, new_N),
        "cum_offsets": padding_N,
        "cu_seqlens_q": ends_N,
        "cu_seqlens_k": ends_N,
        "block_tables": tables_NB,
    }
    # These two are read on the host. Given, they save the operator a wait for the device in every layer; the maxima
    # are known here, so `blha_get_max_len`, which would wait once, is not needed.
    maxima = {"max_enc_len_this_time": prompts_N.max(), "max_dec_len_this_time": cached_N.max()}
    return {
        **{name: paddle.to_tensor(array.astype(np.int32), place=place) for name, array in arrays.items()},
        **{name: paddle.to_tensor([int(n)], "int32", place=paddle.CPUPlace()) for name, n in maxima.items()},
        "max_seq_len": longest,
    }
