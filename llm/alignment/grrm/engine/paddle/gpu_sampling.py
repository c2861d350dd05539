"""Drawing tokens from logits on the device: the steps of `grrm.engine.sampling` as Paddle operators.

Paddle's own `top_p_sampling` is not used, for what the source of its CUDA kernel does: it stops at the uniform number
times p in the order of probability, so the last token of the nucleus gets only the part of its mass below p; its random
numbers are its own, so that no other back end draws the same tokens from the same seed; and where sums round below the
number, it takes the most probable token. Here the uniform numbers are those of every back end.
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
    logits_BV: Tensor,
    params: SamplingParams,
    uniforms_B: NDArray[np.float64],
    n_generated_B: NDArray[np.int64],
    seen_BV: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """What `grrm.engine.sampling.sample_tokens` does, of float32 logits on any device; results and errors are the same.

    Only tokens and log-probabilities leave the device, in one transfer. The device's exponential may differ from
    NumPy's in the last bits, so a uniform number on the border between two tokens may draw the other one. With a
    repetition penalty `seen_BV` travels to the device.
    """
    shaped_BV = _shape_logits(logits_BV, params, n_generated_B, seen_BV)
    scores_BV, weights_BV, total_B = _scale(logits_BV, params.temperature or 1.0)
    finite_B = paddle.isfinite(total_B)
    if params.temperature == 0:
        tokens_B = shaped_BV.argmax(axis=1)
    else:
        if shaped_BV is not logits_BV or params.top_k:
            shaped_scores_BV, weights_BV, shaped_total_B = _scale(shaped_BV, params.temperature)
            finite_B = paddle.logical_and(finite_B, paddle.isfinite(shaped_total_B))
            if 0 < params.top_k < logits_BV.shape[1]:
                weights_BV = _keep_top_k(shaped_scores_BV, weights_BV, params.top_k)
        if params.top_p < 1:
            weights_BV = _keep_top_p(weights_BV, params.top_p)
        tokens_B = _invert_cdf(weights_BV, _to(logits_BV, uniforms_B))
    chosen_B = paddle.take_along_axis(scores_BV, tokens_B.unsqueeze(1), 1).squeeze(1)
    logprobs_B = chosen_B.astype("float64") - total_B.log()
    # float64 holds every token id exactly, so all three come back at once.
    tokens, logprobs, finite = paddle.stack([x.astype("float64") for x in (tokens_B, logprobs_B, finite_B)]).numpy()
    if not finite.all():
        bad = int((finite == 0).sum())
        raise FloatingPointError(f"logits of {bad} of {len(finite)} sequences are not finite: the model diverged")
    return tokens.astype(np.int64), logprobs


def _to(like: Tensor, array: NDArray[np.generic]) -> Tensor:
    return paddle.to_tensor(array, place=like.place)


def _shape_logits(
    logits_BV: Tensor,
    params: SamplingParams,
    n_generated_B: NDArray[np.int64],
    seen_BV: NDArray[np.bool_] | None,
) -> Tensor:
    """Penalty and minimum length; the very same tensor where neither applies."""
    shaped_BV = logits_BV
    if params.repetition_penalty != 1:
        if seen_BV is None:
            raise ValueError("a repetition penalty needs seen_BV")
        penalty = _scalar(logits_BV, params.repetition_penalty)
        penalised_BV = paddle.where(shaped_BV < 0, shaped_BV * penalty, shaped_BV / penalty)
        shaped_BV = paddle.where(_to(logits_BV, seen_BV), penalised_BV, shaped_BV)
    too_short_B = n_generated_B < params.min_new_tokens
    if params.stop_token_ids and too_short_B.any():
        stops_V = np.zeros(logits_BV.shape[1], np.bool_)
        stops_V[list(params.stop_token_ids)] = True
        refused_BV = paddle.logical_and(_to(logits_BV, too_short_B[:, None]), _to(logits_BV, stops_V[None]))
        shaped_BV = paddle.where(refused_BV, paddle.full_like(shaped_BV, -np.inf), shaped_BV)
    return shaped_BV


def _scale(logits_BV: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """(logits - row maximum) / temperature, its exponential, and that one's float64 sum over a row.

    The sum is NaN for a row with NaN or +inf, and for one with nothing but -inf.
    """
    scores_BV = logits_BV - logits_BV.max(axis=1, keepdim=True)
    if temperature != 1:
        scores_BV = scores_BV / _scalar(logits_BV, temperature)
    # What float32 holds no normal number for is 0: on a CPU Paddle's exponential of -inf is not.
    weights_BV = paddle.where(scores_BV < _TINY, paddle.zeros_like(scores_BV), scores_BV.exp())
    return scores_BV, weights_BV, weights_BV.astype("float64").sum(axis=1)


def _scalar(like: Tensor, value: float) -> Tensor:
    """As a tensor, because division by a Python number multiplies by its rounded inverse."""
    return _to(like, np.array([value], np.float32))


def _keep_top_k(scores_BV: Tensor, weights_BV: Tensor, k: int) -> Tensor:
    """Weights below each row's k-th largest score set to 0; ties with the k-th stay."""
    kth_B1 = paddle.topk(scores_BV, k, axis=1)[0][:, -1:]
    return paddle.where(scores_BV < kth_B1, paddle.zeros_like(weights_BV), weights_BV)


def _keep_top_p(weights_BV: Tensor, top_p: float) -> Tensor:
    """Weights outside each row's nucleus set to 0; ties with its least probable member stay."""
    descending_BV = paddle.sort(weights_BV, axis=1, descending=True)
    exact_BV = descending_BV.astype("float64")
    mass_BV = paddle.cumsum(exact_BV, axis=1)
    before_BV = mass_BV - exact_BV
    limit_B1 = mass_BV[:, -1:] * _to(weights_BV, np.array([top_p]))
    last_B1 = (before_BV < limit_B1).astype("int64").sum(axis=1, keepdim=True).clip(min=1) - 1
    least_B1 = paddle.take_along_axis(descending_BV, last_B1, 1)
    return paddle.where(weights_BV < least_B1, paddle.zeros_like(weights_BV), weights_BV)


def _invert_cdf(weights_BV: Tensor, uniforms_B: Tensor) -> Tensor:
    """First index where the float64 cumulative weight exceeds uniform x total; never a token of weight 0."""
    rows, vocabulary = weights_BV.shape
    padding = -vocabulary % _BLOCK
    if padding:
        weights_BV = paddle.concat([weights_BV, paddle.zeros([rows, padding], weights_BV.dtype)], axis=1)
    inner_BKW = weights_BV.reshape([rows, -1, _BLOCK])
    sums_BK = inner_BKW.astype("float64").sum(axis=2)
    cdf_BK = paddle.cumsum(sums_BK, axis=1)
    total_B = cdf_BK[:, -1]
    below_B = paddle.nextafter(total_B, paddle.zeros_like(total_B))
    target_B1 = paddle.minimum(uniforms_B * total_B, below_B).unsqueeze(1)
    block_B1 = _count(cdf_BK <= target_B1)
    inner_BW = paddle.take_along_axis(inner_BKW, block_B1.unsqueeze(2), 1, broadcast=True).squeeze(1).astype("float64")
    before_B1 = paddle.take_along_axis(cdf_BK, block_B1, 1) - paddle.take_along_axis(sums_BK, block_B1, 1)
    rest_B1 = (target_B1 - before_B1).clip(min=0)
    within_B1 = _count(paddle.cumsum(inner_BW, axis=1) <= rest_B1)
    # Rounding may overshoot the block's end: its last token with a weight is the limit.
    places_1W = paddle.arange(_BLOCK, dtype="int64").unsqueeze(0)
    last_B1 = ((inner_BW > 0).astype("int64") * places_1W).max(axis=1, keepdim=True)
    return (block_B1 * _BLOCK + paddle.minimum(within_B1, last_B1)).squeeze(1)


def _count(marks_BV: Tensor) -> Tensor:
    return marks_BV.astype("int64").sum(axis=1, keepdim=True)
