"""Drawing tokens from logits in C++ (csrc/kernels/sampling.h), where nothing is sorted."""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from grrm.engine.api import SamplingParams
from grrm.models import cpu_kernels


def sample_tokens(
    logits_BV: NDArray[np.float32],
    params: SamplingParams,
    uniforms_B: NDArray[np.float64],
    n_generated_B: NDArray[np.int64],
    seen_BV: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """What `grrm.engine.sampling.sample_tokens` does, with the same arguments, results and errors.

    The exponential is an approximation with a relative error of 3e-7, so a uniform number on the border between two
    tokens may draw the other one.
    """
    if params.repetition_penalty == 1:
        seen_BV = None
    elif seen_BV is None:
        raise ValueError("a repetition penalty needs seen_BV")
    rows, vocabulary = logits_BV.shape
    logits = np.ascontiguousarray(logits_BV, dtype=np.float32)
    uniforms = np.ascontiguousarray(uniforms_B, dtype=np.float64)
    too_short = np.ascontiguousarray(n_generated_B < params.min_new_tokens, dtype=np.uint8)
    seen = None if seen_BV is None else np.ascontiguousarray(seen_BV, dtype=np.bool_).view(np.uint8)
    stops = cpu_kernels.int64s(params.stop_token_ids)
    tokens_B, logprobs_B = np.empty(rows, np.int64), np.empty(rows)
    bad = cpu_kernels.call(
        "grrm_sample",
        logits,
        ctypes.c_int64(rows),
        ctypes.c_int64(vocabulary),
        ctypes.c_float(params.temperature),
        ctypes.c_int64(params.top_k),
        ctypes.c_double(params.top_p),
        ctypes.c_float(params.repetition_penalty),
        seen,
        too_short,
        stops,
        ctypes.c_int64(len(stops)),
        uniforms,
        tokens_B,
        logprobs_B,
    )
    if bad:
        raise FloatingPointError(f"logits of {bad} of {rows} sequences are not finite: the model diverged")
    return tokens_B, logprobs_B
