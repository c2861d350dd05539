"""The fused operators of Paddle that the GPU decoder calls, which models they run, and their arguments for a batch."""

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
