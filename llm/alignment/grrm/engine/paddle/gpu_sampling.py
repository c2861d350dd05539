"""Sampling tokens from logits on the device: the steps of `grrm.engine.sampling` as Paddle operators.

Paddle's own `top_p_sampling` is not used. By the source of its CUDA kernel it stops at the uniform number times p in
the order of probability, so the last token of the nucleus gets only the part of its mass below p.

It also draws its own random numbers, and takes the most probable token if rounded sums stay below the number. All back
ends of this project sample with the same uniform numbers.
"""

from __future__ import annotations

import numpy as np
import paddle
from numpy.typing import NDArray
from paddle import Tensor

from grrm.engine.api import SamplingParams

_BLOCK = 64  # width of the second level of the inverse-CDF search
_TINY = -87.0


@paddle.no_grad()
def sample_tokens(
    logits_SV: Tensor,
    params: SamplingParams,
    uniforms_S: NDArray[np.float64],
    n_generated_S: NDArray[np.int64],
    seen_SV: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Sample as `grrm.engine.sampling.sample_tokens`, from float32 logits on any device; the errors are the same.

    Only tokens and log-probabilities leave the device, in one transfer. The device's exponential may differ from
    NumPy's in the last bits, so a uniform number on the border between two tokens may give the other one. With a
    repetition penalty `seen_SV` is copied to the device.
    """
    shaped_SV = _shape_logits(logits_SV, params, n_generated_S, seen_SV)
    scores_SV, weights_SV, total_S = _scale(logits_SV, params.temperature or 1.0)
    finite_S = paddle.isfinite(total_S)
    if params.temperature == 0:
        tokens_S = shaped_SV.argmax(axis=1)
    else:
        if shaped_SV is not logits_SV or params.top_k:
            shaped_scores_SV, weights_SV, shaped_total_S = _scale(shaped_SV, params.temperature)
            finite_S = paddle.logical_and(finite_S, paddle.isfinite(shaped_total_S))
            if 0 < params.top_k < logits_SV.shape[1]:
                weights_SV = _keep_top_k(shaped_scores_SV, weights_SV, params.top_k)
        if params.top_p < 1:
            weights_SV = _keep_top_p(weights_SV, params.top_p)
        tokens_S = _invert_cdf(weights_SV, _to(logits_SV, uniforms_S))
    chosen_S = paddle.take_along_axis(scores_SV, tokens_S.unsqueeze(1), 1).squeeze(1)
    logprobs_S = chosen_S.astype("float64") - total_S.log()
    # float64 holds every token id exactly, so all three come back at once.
    tokens, logprobs, finite = paddle.stack([x.astype("float64") for x in (tokens_S, logprobs_S, finite_S)]).numpy()
    if not finite.all():
        bad = int((finite == 0).sum())
        raise FloatingPointError(f"logits of {bad} of {len(finite)} sequences are not finite: the model diverged")
    return tokens.astype(np.int64), logprobs


@paddle.no_grad()
def token_logprobs(
    logits_SV: Tensor, tokens_S: NDArray[np.int64], params: SamplingParams
) -> tuple[NDArray[np.float64], tuple[NDArray[np.int64], NDArray[np.float64]] | None]:
    """Compute `grrm.engine.sampling.token_logprobs` on the device; equally probable tokens come in any order."""
    scores_SV, _, total_S = _scale(logits_SV, params.temperature or 1.0)
    log_total_S1 = total_S.log().unsqueeze(1)
    chosen_S1 = paddle.take_along_axis(scores_SV, _to(logits_SV, tokens_S[:, None]), 1).astype("float64")
    logprobs_S = (chosen_S1 - log_total_S1).squeeze(1).numpy()
    if not np.isfinite(logprobs_S).all():
        raise FloatingPointError("logits of a prompt are not finite: the model diverged")
    if not params.top_logprobs:
        return logprobs_S, None
    best_SK, tokens_SK = paddle.topk(scores_SV, min(params.top_logprobs, scores_SV.shape[1]), axis=1)
    return logprobs_S, (tokens_SK.numpy(), (best_SK.astype("float64") - log_total_S1).numpy())


def _to(like: Tensor, array: NDArray[np.generic]) -> Tensor:
    return paddle.to_tensor(array, place=like.place)


def _shape_logits(
    logits_SV: Tensor,
    params: SamplingParams,
    n_generated_S: NDArray[np.int64],
    seen_SV: NDArray[np.bool_] | None,
) -> Tensor:
    """Penalty and minimum length; the very same tensor where neither applies."""
    shaped_SV = logits_SV
    if params.repetition_penalty != 1:
        if seen_SV is None:
            raise ValueError("a repetition penalty needs seen_SV")
        penalty = _scalar(logits_SV, params.repetition_penalty)
        penalised_SV = paddle.where(shaped_SV < 0, shaped_SV * penalty, shaped_SV / penalty)
        shaped_SV = paddle.where(_to(logits_SV, seen_SV), penalised_SV, shaped_SV)
    too_short_S = n_generated_S < params.min_new_tokens
    if params.stop_token_ids and too_short_S.any():
        stops_V = np.zeros(logits_SV.shape[1], np.bool_)
        stops_V[list(params.stop_token_ids)] = True
        refused_SV = paddle.logical_and(_to(logits_SV, too_short_S[:, None]), _to(logits_SV, stops_V[None]))
        shaped_SV = paddle.where(refused_SV, paddle.full_like(shaped_SV, -np.inf), shaped_SV)
    return shaped_SV


def _scale(logits_SV: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """(logits - row maximum) / temperature, its exponential, and that one's float64 sum over a row.

    The sum is NaN for a row with NaN or +inf, and for one with nothing but -inf.
    """
    scores_SV = logits_SV - logits_SV.max(axis=1, keepdim=True)
    if temperature != 1:
        scores_SV = scores_SV / _scalar(logits_SV, temperature)
    # What float32 holds no normal number for is 0: on a CPU Paddle's exponential of -inf is not.
    weights_SV = paddle.where(scores_SV < _TINY, paddle.zeros_like(scores_SV), scores_SV.exp())
    return scores_SV, weights_SV, weights_SV.astype("float64").sum(axis=1)


def _scalar(like: Tensor, value: float) -> Tensor:
    """As a tensor, because division by a Python number multiplies by its rounded inverse."""
    return _to(like, np.array([value], np.float32))


def _keep_top_k(scores_SV: Tensor, weights_SV: Tensor, k: int) -> Tensor:
    """Weights below each row's k-th largest score set to 0; ties with the k-th stay."""
    kth_S1 = paddle.topk(scores_SV, k, axis=1)[0][:, -1:]
    return paddle.where(scores_SV < kth_S1, paddle.zeros_like(weights_SV), weights_SV)


def _keep_top_p(weights_SV: Tensor, top_p: float) -> Tensor:
    """Weights outside each row's nucleus set to 0; ties with its least probable member stay."""
    descending_SV = paddle.sort(weights_SV, axis=1, descending=True)
    exact_SV = descending_SV.astype("float64")
    mass_SV = paddle.cumsum(exact_SV, axis=1)
    before_SV = mass_SV - exact_SV
    limit_S1 = mass_SV[:, -1:] * _to(weights_SV, np.array([top_p]))
    last_S1 = (before_SV < limit_S1).astype("int64").sum(axis=1, keepdim=True).clip(min=1) - 1
    least_S1 = paddle.take_along_axis(descending_SV, last_S1, 1)
    return paddle.where(weights_SV < least_S1, paddle.zeros_like(weights_SV), weights_SV)


def _invert_cdf(weights_SV: Tensor, uniforms_S: Tensor) -> Tensor:
    """First index where the float64 cumulative weight exceeds uniform x total; never a token of weight 0."""
    rows, vocabulary = weights_SV.shape
    padding = -vocabulary % _BLOCK
    if padding:
        weights_SV = paddle.concat([weights_SV, paddle.zeros([rows, padding], weights_SV.dtype)], axis=1)
    inner_SKW = weights_SV.reshape([rows, -1, _BLOCK])
    sums_SK = inner_SKW.astype("float64").sum(axis=2)
    cdf_SK = paddle.cumsum(sums_SK, axis=1)
    total_S = cdf_SK[:, -1]
    below_S = paddle.nextafter(total_S, paddle.zeros_like(total_S))
    target_S1 = paddle.minimum(uniforms_S * total_S, below_S).unsqueeze(1)
    block_S1 = _count(cdf_SK <= target_S1)
    inner_SW = paddle.take_along_axis(inner_SKW, block_S1.unsqueeze(2), 1, broadcast=True).squeeze(1).astype("float64")
    before_S1 = paddle.take_along_axis(cdf_SK, block_S1, 1) - paddle.take_along_axis(sums_SK, block_S1, 1)
    rest_S1 = (target_S1 - before_S1).clip(min=0)
    within_S1 = _count(paddle.cumsum(inner_SW, axis=1) <= rest_S1)
    # Rounding may overshoot the block's end: its last token with a weight is the limit.
    offsets_1W = paddle.arange(_BLOCK, dtype="int64").unsqueeze(0)
    last_S1 = ((inner_SW > 0).astype("int64") * offsets_1W).max(axis=1, keepdim=True)
    return (block_S1 * _BLOCK + paddle.minimum(within_S1, last_S1)).squeeze(1)


def _count(marks_SV: Tensor) -> Tensor:
    return marks_SV.astype("int64").sum(axis=1, keepdim=True)
