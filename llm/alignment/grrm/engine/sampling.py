"""Drawing tokens from logits on the host: numpy only, one uniform number per token, nothing shared between rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from grrm.engine.api import SamplingParams

_BLOCK = 64  # width of the second level of the inverse-CDF search
_U64 = (1 << 64) - 1


def draw_uniforms(seed: int, stream_ids: Sequence[int], count: int) -> NDArray[np.float64]:
    """Uniforms in [0, 1), (streams, count): row i is the start of the Philox stream keyed (seed, stream_ids[i]).

    The streams are counter based: they neither overlap nor depend on one another, and a longer draw begins
    with the shorter one. Ids and seeds are taken modulo 2^64.
    """
    uniforms_BT = np.empty((len(stream_ids), count))
    for row, stream_id in enumerate(stream_ids):
        key = np.array([seed & _U64, stream_id & _U64], dtype=np.uint64)
        np.random.Generator(np.random.Philox(key=key)).random(out=uniforms_BT[row])
    return uniforms_BT


def apply_repetition_penalty(
    logits_BV: NDArray[np.float32], seen_BV: NDArray[np.bool_], penalty: float
) -> NDArray[np.float32]:
    """Logits of tokens seen in prompt or completion: divided by `penalty` when positive, multiplied when negative.

    Keskar et al. 2019 (CTRL), with the sign rule that transformers and PaddleNLP use. Penalty 1 changes nothing.
    """
    penalised_BV = np.where(logits_BV < 0, logits_BV * np.float32(penalty), logits_BV / np.float32(penalty))
    return np.where(seen_BV, penalised_BV, logits_BV)


def keep_top_k(scores_BV: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    """Scores with everything below each row's k-th largest set to -inf; ties with the k-th stay. k >= V keeps all."""
    if k >= scores_BV.shape[1]:
        return scores_BV
    kth_B1 = np.partition(scores_BV, -k, axis=1)[:, -k, None]
    return np.where(scores_BV < kth_B1, np.float32(-np.inf), scores_BV)


def keep_top_p(weights_BV: NDArray[np.float32], top_p: float) -> NDArray[np.float32]:
    """Weights (unnormalised probabilities) outside each row's nucleus set to 0.

    The nucleus is the smallest set of most probable tokens that holds at least `top_p` of the mass (Holtzman
    et al. 2020); the most probable token is always in it, and so are ties with its least probable member.
    """
    descending_BV = -np.sort(-weights_BV, axis=1)
    mass_BV = np.cumsum(descending_BV, axis=1, dtype=np.float64)
    before_BV = mass_BV - descending_BV
    kept_B = np.maximum(1, (before_BV < top_p * mass_BV[:, -1:]).sum(axis=1))
    least_B1 = np.take_along_axis(descending_BV, kept_B[:, None] - 1, axis=1)
    return np.where(weights_BV < least_B1, np.float32(0), weights_BV)


def sample_tokens(
    logits_BV: NDArray[np.float32],
    params: SamplingParams,
    uniforms_B: NDArray[np.float64],
    n_generated_B: NDArray[np.int64],
    seen_BV: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """One token per row, with its log-probability under the policy (see `Completion.logprobs`).

    Order: repetition penalty, minimum length, temperature, top-k, top-p, then the inverse of the cumulative
    distribution at `uniforms_B`. `n_generated_B` counts the tokens each row already has; `seen_BV` marks the
    tokens of its prompt and completion and is needed only with a repetition penalty. Temperature 0 takes the
    argmax (first of ties) and reports log-probabilities at temperature 1.
    Raises FloatingPointError when a row's logits hold NaN or +inf, or nothing but -inf.
    """
    shaped_BV = _shape_logits(logits_BV, params, n_generated_B, seen_BV)
    temperature = params.temperature or 1.0
    scores_BV, weights_BV = _scale(logits_BV, temperature)
    log_total_B = np.log(_block_sums(weights_BV).sum(axis=1))
    if params.temperature == 0:
        tokens_B = shaped_BV.argmax(axis=1)
    else:
        if shaped_BV is not logits_BV or params.top_k:
            weights_BV = _filtered_weights(shaped_BV, params)
        if params.top_p < 1:
            weights_BV = keep_top_p(weights_BV, params.top_p)
        tokens_B = _invert_cdf(weights_BV, uniforms_B)
    logprobs_B = scores_BV[np.arange(len(tokens_B)), tokens_B].astype(np.float64) - log_total_B
    return tokens_B.astype(np.int64), logprobs_B


def _shape_logits(
    logits_BV: NDArray[np.float32],
    params: SamplingParams,
    n_generated_B: NDArray[np.int64],
    seen_BV: NDArray[np.bool_] | None,
) -> NDArray[np.float32]:
    """Penalty and minimum length; the very same array where neither applies."""
    shaped_BV = logits_BV
    if params.repetition_penalty != 1:
        if seen_BV is None:
            raise ValueError("a repetition penalty needs seen_BV")
        shaped_BV = apply_repetition_penalty(shaped_BV, seen_BV, params.repetition_penalty)
    too_short_B = n_generated_B < params.min_new_tokens
    if params.stop_token_ids and too_short_B.any():
        shaped_BV = shaped_BV.copy()
        shaped_BV[np.ix_(too_short_B, params.stop_token_ids)] = -np.inf
    return shaped_BV


def _scale(logits_BV: NDArray[np.float32], temperature: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(logits - row maximum) / temperature, and its exponential padded with zeros to whole blocks."""
    maxima_B1 = logits_BV.max(axis=1, keepdims=True)
    if not np.isfinite(maxima_B1).all():
        bad = int((~np.isfinite(maxima_B1)).sum())
        raise FloatingPointError(f"logits of {bad} of {len(logits_BV)} sequences are not finite: the model diverged")
    # Subtracting first keeps tiny temperatures from overflowing.
    scores_BV = logits_BV - maxima_B1
    if temperature != 1:
        with np.errstate(over="ignore"):  # -inf is the right limit
            scores_BV /= np.float32(temperature)
    return scores_BV, _padded_exp(scores_BV)


def _padded_exp(scores_BV: NDArray[np.float32]) -> NDArray[np.float32]:
    rows, vocab = scores_BV.shape
    weights_BV = np.empty((rows, -(-vocab // _BLOCK) * _BLOCK), dtype=np.float32)
    weights_BV[:, vocab:] = 0
    np.exp(scores_BV, out=weights_BV[:, :vocab])
    return weights_BV


def _filtered_weights(shaped_BV: NDArray[np.float32], params: SamplingParams) -> NDArray[np.float32]:
    scores_BV, weights_BV = _scale(shaped_BV, params.temperature)
    return _padded_exp(keep_top_k(scores_BV, params.top_k)) if params.top_k else weights_BV


def _block_sums(weights_BV: NDArray[np.float32]) -> NDArray[np.float64]:
    return weights_BV.reshape(len(weights_BV), -1, _BLOCK).sum(axis=2, dtype=np.float64)


def _invert_cdf(weights_BV: NDArray[np.float32], uniforms_B: NDArray[np.float64]) -> NDArray[np.int64]:
    """First index where the float64 cumulative weight exceeds uniform x total; never a token of weight 0.

    Two levels, the block first, because a full cumulative sum costs more than a small model's forward pass.
    """
    rows_B = np.arange(len(weights_BV))
    sums_BK = _block_sums(weights_BV)
    cdf_BK = np.cumsum(sums_BK, axis=1)
    total_B = cdf_BK[:, -1]
    target_B = np.minimum(uniforms_B * total_B, np.nextafter(total_B, 0))
    block_B = (cdf_BK <= target_B[:, None]).sum(axis=1)
    inner_BW = weights_BV.reshape(len(weights_BV), -1, _BLOCK)[rows_B, block_B].astype(np.float64)
    rest_B = np.maximum(target_B - (cdf_BK[rows_B, block_B] - sums_BK[rows_B, block_B]), 0)
    within_B = (np.cumsum(inner_BW, axis=1) <= rest_B[:, None]).sum(axis=1)
    last_B = _BLOCK - 1 - (inner_BW[:, ::-1] > 0).argmax(axis=1)  # rounding may overshoot the block's end
    return block_B * _BLOCK + np.minimum(within_B, last_B)
