"""The most probable tokens, in NumPy and on the device."""

from __future__ import annotations

import numpy as np
import paddle
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from grrm.engine import sampling
from grrm.engine.api import SamplingParams
from grrm.engine.paddle import gpu_sampling

QUARTERS = arrays(np.int64, (2, 70), elements=st.integers(-120, 120))  # whose differences have no rounding


@given(QUARTERS, st.integers(1, 80), st.sampled_from([0.0, 0.5, 1.0]))
def test_they_are_the_highest_of_the_log_softmax(quarters_SV: np.ndarray, k: int, temperature: float) -> None:
    logits_SV = (quarters_SV / 4).astype(np.float32)
    params = SamplingParams(1, temperature=temperature, top_logprobs=k)
    scaled_SV = logits_SV.astype(np.float64) / (temperature or 1.0)
    logprobs_SV = scaled_SV - np.logaddexp.reduce(scaled_SV, axis=1, keepdims=True)
    order_SV = np.argsort(-logits_SV, axis=1, kind="stable")
    tokens_SK, found_SK = sampling.top_logprobs(logits_SV, params)
    np.testing.assert_array_equal(tokens_SK, order_SV[:, :k])
    np.testing.assert_allclose(found_SK, np.take_along_axis(logprobs_SV, tokens_SK, axis=1), atol=1e-4)
    on_device_SK, device_SK = gpu_sampling.top_logprobs(paddle.to_tensor(logits_SV), params)
    np.testing.assert_allclose(device_SK, found_SK, atol=1e-4)
    np.testing.assert_allclose(device_SK, np.take_along_axis(logprobs_SV, on_device_SK, axis=1), atol=1e-4)
