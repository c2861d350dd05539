"""Drawing tokens from logits on the CPU, in NumPy or in C++: one uniform number per token, each row by itself."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from grrm.engine.api import SamplingParams
from grrm.models import cpu_kernels

_BLOCK = 64  # width of the second level of the inverse-CDF search
_U64 = (1 << 64) - 1
TopArrays: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float64]]  # tokens and log-probabilities, both [S, k]


def draw_uniforms(seed: int, stream_id: int, count: int) -> NDArray[np.float64]:
    """The first `count` uniforms in [0, 1) of the Philox stream keyed (seed, stream_id).

    The streams are counter based: they neither overlap nor depend on one another. Ids and seeds are taken modulo 2^64.
    """
    key = np.array([seed & _U64, stream_id & _U64], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).random(count)


def apply_repetition_penalty(
    logits_SV: NDArray[np.float32], seen_SV: NDArray[np.bool_], penalty: float
) -> NDArray[np.float32]:
    """Logits of tokens seen in prompt or completion: divided by `penalty` when positive, multiplied when negative.

    Keskar et al. 2019 (CTRL), with the sign rule that transformers and PaddleNLP use. Penalty 1 changes nothing.
    """
    penalised_SV = np.where(logits_SV < 0, logits_SV * np.float32(penalty), logits_SV / np.float32(penalty))
    return np.where(seen_SV, penalised_SV, logits_SV)


def apply_count_penalties(
    logits_SV: NDArray[np.float32], completions: Sequence[NDArray[np.int64]], params: SamplingParams
) -> NDArray[np.float32]:
    """Logits minus `frequency_penalty` times the count of the token in the completion, and `presence_penalty` if any.

    OpenAI's formula, as vLLM applies it: tokens of the prompt do not count.
    """
    shaped_SV = logits_SV.copy()
    for row_V, tokens in zip(shaped_SV, completions, strict=True):
        ids, counts = np.unique(tokens, return_counts=True)
        row_V[ids] -= (params.frequency_penalty * counts + params.presence_penalty).astype(np.float32)
    return shaped_SV


def keep_top_k(scores_SV: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    """Scores with everything below each row's k-th largest set to -inf; ties with the k-th stay. k >= V keeps all."""
    if k >= scores_SV.shape[1]:
        return scores_SV
    kth_S1 = np.partition(scores_SV, -k, axis=1)[:, -k, None]
    return np.where(scores_SV < kth_S1, np.float32(-np.inf), scores_SV)


def keep_top_p(weights_SV: NDArray[np.float32], top_p: float) -> NDArray[np.float32]:
    """Weights (unnormalised probabilities) outside each row's nucleus set to 0.

    The nucleus is the smallest set of most probable tokens that holds at least `top_p` of the mass (Holtzman
    et al. 2020); the most probable token is always in it, and so are ties with its least probable member.
    """
    descending_SV = -np.sort(-weights_SV, axis=1)
    mass_SV = np.cumsum(descending_SV, axis=1, dtype=np.float64)
    before_SV = mass_SV - descending_SV
    size_S = np.maximum(1, (before_SV < top_p * mass_SV[:, -1:]).sum(axis=1))
    least_S1 = np.take_along_axis(descending_SV, size_S[:, None] - 1, axis=1)
    return np.where(weights_SV < least_S1, np.float32(0), weights_SV)


def sample_tokens(
    logits_SV: NDArray[np.float32],
    params: SamplingParams,
    uniforms_S: NDArray[np.float64],
    n_generated_S: NDArray[np.int64],
    seen_SV: NDArray[np.bool_] | None = None,
    completions: Sequence[NDArray[np.int64]] = (),
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Sample one token per row, with its log-probability under the policy (see `Completion.logprobs`).

    Order: repetition penalty, penalties by count, minimum length, temperature, top-k, top-p, then the inverse of the
    cumulative distribution at `uniforms_S`. Temperature 0 takes the argmax (first of ties) and reports
    log-probabilities at temperature 1.

    Args:
        logits_SV: of the next token.
        params: common to all rows.
        uniforms_S: random numbers in [0, 1).
        n_generated_S: number of tokens that each row has already.
        seen_SV: marks the tokens of prompt and completion; needed only with a repetition penalty.
        completions: the tokens that each row has already; needed only with a penalty by count.

    Raises:
        FloatingPointError: when a row's logits contain NaN or +inf, or nothing but -inf.
    """
    shaped_SV = _shape_logits(logits_SV, params, n_generated_S, seen_SV, completions)
    temperature = params.temperature or 1.0
    scores_SV, weights_SV = _scale(logits_SV, temperature)
    log_total_S = np.log(_block_sums(weights_SV).sum(axis=1))
    if params.temperature == 0:
        tokens_S = shaped_SV.argmax(axis=1)
    else:
        if shaped_SV is not logits_SV or params.top_k:
            weights_SV = _filtered_weights(shaped_SV, params)
        if params.top_p < 1:
            weights_SV = keep_top_p(weights_SV, params.top_p)
        tokens_S = _invert_cdf(weights_SV, uniforms_S)
    logprobs_S = scores_SV[np.arange(len(tokens_S)), tokens_S].astype(np.float64) - log_total_S
    return tokens_S.astype(np.int64), logprobs_S


def sample_tokens_cpp(
    logits_SV: NDArray[np.float32],
    params: SamplingParams,
    uniforms_S: NDArray[np.float64],
    n_generated_S: NDArray[np.int64],
    seen_SV: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """`sample_tokens` in C++ (csrc/kernels/sampling.h), where nothing is sorted: same arguments, results and errors.

    The exponential is an approximation with a relative error of 3e-7, so a uniform number on the border between two
    tokens may draw the other one.
    """
    if params.repetition_penalty == 1:
        seen_SV = None
    elif seen_SV is None:
        raise ValueError("a repetition penalty needs seen_SV")
    rows, vocabulary = logits_SV.shape
    logits = np.ascontiguousarray(logits_SV, dtype=np.float32)
    uniforms = np.ascontiguousarray(uniforms_S, dtype=np.float64)
    too_short = np.ascontiguousarray(n_generated_S < params.min_new_tokens, dtype=np.uint8)
    seen = None if seen_SV is None else np.ascontiguousarray(seen_SV, dtype=np.bool_).view(np.uint8)
    stops = cpu_kernels.int64s(params.stop_token_ids)
    tokens_S, logprobs_S = np.empty(rows, np.int64), np.empty(rows)
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
        tokens_S,
        logprobs_S,
    )
    if bad:
        raise FloatingPointError(f"logits of {bad} of {rows} sequences are not finite: the model diverged")
    return tokens_S, logprobs_S


def token_logprobs(
    logits_SV: NDArray[np.float32], tokens_S: NDArray[np.int64], params: SamplingParams
) -> tuple[NDArray[np.float64], TopArrays | None]:
    """The log-probabilities of these tokens, one a row; and tokens and log-probabilities of the most probable, [S, k].

    Those are best first, of equally probable ones the lower id first. k is `params.top_logprobs`, or the size of a
    smaller vocabulary; None where it is 0. A token has the same number in both.
    """
    scores_SV, weights_SV = _scale(logits_SV, params.temperature or 1.0)
    log_total_S1 = np.log(_block_sums(weights_SV).sum(axis=1, keepdims=True))
    chosen_S1 = np.take_along_axis(scores_SV, tokens_S[:, None], axis=1).astype(np.float64)
    top = _top_of(scores_SV, log_total_S1, params.top_logprobs) if params.top_logprobs else None
    return (chosen_S1 - log_total_S1)[:, 0], top


def _top_of(scores_SV: NDArray[np.float32], log_total_S1: NDArray[np.float64], k: int) -> TopArrays:
    k = min(k, scores_SV.shape[1])
    if k == 1:  # quicker, and what evaluations ask for
        tokens_SK = scores_SV.argmax(axis=1)[:, None]
    else:
        least_S1 = np.partition(scores_SV, -k, axis=1)[:, -k, None]
        rows = zip(scores_SV, least_S1, strict=True)
        tokens_SK = np.stack([_best_first(scores_V, least, k) for scores_V, least in rows])
    return tokens_SK, np.take_along_axis(scores_SV, tokens_SK, axis=1).astype(np.float64) - log_total_S1


def _best_first(scores_V: NDArray[np.float32], least: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """The ids of the k highest scores, which are at least `least`."""
    candidates = np.flatnonzero(scores_V >= least)
    return candidates[np.argsort(-scores_V[candidates], kind="stable")[:k]]


def _shape_logits(
    logits_SV: NDArray[np.float32],
    params: SamplingParams,
    n_generated_S: NDArray[np.int64],
    seen_SV: NDArray[np.bool_] | None,
    completions: Sequence[NDArray[np.int64]],
) -> NDArray[np.float32]:
    """Penalties and minimum length; the very same array where none applies."""
    shaped_SV = logits_SV
    if params.repetition_penalty != 1:
        if seen_SV is None:
            raise ValueError("a repetition penalty needs seen_SV")
        shaped_SV = apply_repetition_penalty(shaped_SV, seen_SV, params.repetition_penalty)
    if params.counts_tokens:
        shaped_SV = apply_count_penalties(shaped_SV, completions, params)
    too_short_S = n_generated_S < params.min_new_tokens
    if params.stop_token_ids and too_short_S.any():
        shaped_SV = shaped_SV.copy()
        shaped_SV[np.ix_(too_short_S, np.array(params.stop_token_ids))] = -np.inf
    return shaped_SV


def _scale(logits_SV: NDArray[np.float32], temperature: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(logits - row maximum) / temperature, and its exponential padded with zeros to whole blocks."""
    maxima_S1 = logits_SV.max(axis=1, keepdims=True)
    if not np.isfinite(maxima_S1).all():
        bad = int((~np.isfinite(maxima_S1)).sum())
        raise FloatingPointError(f"logits of {bad} of {len(logits_SV)} sequences are not finite: the model diverged")
    # Subtracting first keeps tiny temperatures from overflowing.
    scores_SV = logits_SV - maxima_S1
    if temperature != 1:
        with np.errstate(over="ignore"):  # -inf is the right limit
            scores_SV /= np.float32(temperature)
    return scores_SV, _padded_exp(scores_SV)


def _padded_exp(scores_SV: NDArray[np.float32]) -> NDArray[np.float32]:
    rows, vocab = scores_SV.shape
    weights_SV = np.empty((rows, -(-vocab // _BLOCK) * _BLOCK), dtype=np.float32)
    weights_SV[:, vocab:] = 0
    np.exp(scores_SV, out=weights_SV[:, :vocab])
    return weights_SV


def _filtered_weights(shaped_SV: NDArray[np.float32], params: SamplingParams) -> NDArray[np.float32]:
    scores_SV, weights_SV = _scale(shaped_SV, params.temperature)
    return _padded_exp(keep_top_k(scores_SV, params.top_k)) if params.top_k else weights_SV


def _block_sums(weights_SV: NDArray[np.float32]) -> NDArray[np.float64]:
    return weights_SV.reshape(len(weights_SV), -1, _BLOCK).sum(axis=2, dtype=np.float64)


def _invert_cdf(weights_SV: NDArray[np.float32], uniforms_S: NDArray[np.float64]) -> NDArray[np.int64]:
    """First index where the float64 cumulative weight exceeds uniform x total; never a token of weight 0.

    Two levels, the block first, because a full cumulative sum costs more than a small model's forward pass.
    """
    rows_S = np.arange(len(weights_SV))
    sums_SK = _block_sums(weights_SV)
    cdf_SK = np.cumsum(sums_SK, axis=1)
    total_S = cdf_SK[:, -1]
    target_S = np.minimum(uniforms_S * total_S, np.nextafter(total_S, 0))
    block_S = (cdf_SK <= target_S[:, None]).sum(axis=1)
    inner_SW = weights_SV.reshape(len(weights_SV), -1, _BLOCK)[rows_S, block_S].astype(np.float64)
    rest_S = np.maximum(target_S - (cdf_SK[rows_S, block_S] - sums_SK[rows_S, block_S]), 0)
    within_S = (np.cumsum(inner_SW, axis=1) <= rest_S[:, None]).sum(axis=1)
    last_S = _BLOCK - 1 - (inner_SW[:, ::-1] > 0).argmax(axis=1)  # rounding may overshoot the block's end
    return block_S * _BLOCK + np.minimum(within_S, last_S)
