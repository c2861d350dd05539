"""The sampler: distribution, filters, reproducibility."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from grrm.engine import sampling
from grrm.engine.api import SamplingParams
from grrm.engine.paddle import gpu_sampling
from grrm.engine.sampling import apply_count_penalties, apply_repetition_penalty, draw_uniforms, keep_top_k, keep_top_p
from grrm.models import cpu_kernels

VOCAB = 150  # more than two search blocks, and not a multiple of their width
logit_rows = arrays(np.float32, (3, VOCAB), elements=st.floats(-30, 30, width=32))


def sample_on_device(logits, *rest):
    return gpu_sampling.sample_tokens(paddle.to_tensor(logits), *rest)


SAMPLERS = {"numpy": sampling.sample_tokens, "cpu": sampling.sample_tokens_cpp, "gpu": sample_on_device}
in_use = sampling.sample_tokens


@pytest.fixture(scope="module", params=list(SAMPLERS), autouse=True)
def sampler(request):
    """Every test runs with all samplers; `sample_tokens` is the one in use."""
    global in_use
    if request.param == "cpu" and not cpu_kernels.available():
        pytest.skip("there is no C++ compiler here")
    in_use = SAMPLERS[request.param]


def sample_tokens(*arguments):
    return in_use(*arguments)


def logits_with_structure(seed=0, rows=1):
    return np.random.default_rng(seed).normal(0, 2, (rows, VOCAB)).astype(np.float32)


def softmax(scores):
    weights = np.exp(scores.astype(np.float64) - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def draw_many(params, n=40_000, seed=0, seen=None):
    logits = np.repeat(logits_with_structure(), n, axis=0)
    uniforms = np.random.default_rng(seed).random(n)
    seen = None if seen is None else np.repeat(seen, n, axis=0)
    return sample_tokens(logits, params, uniforms, np.zeros(n, np.int64), seen)


def chi_square_is_plausible(tokens, probabilities):
    """Pearson's statistic over cells of expectation >= 10 (the rest pooled), within five sigmas."""
    counts = np.bincount(tokens, minlength=len(probabilities))
    expected = probabilities * len(tokens)
    big = expected >= 10
    observed = np.append(counts[big], counts[~big].sum())
    wanted = np.append(expected[big], expected[~big].sum())
    observed, wanted = observed[wanted > 0], wanted[wanted > 0]
    freedom = len(wanted) - 1
    return ((observed - wanted) ** 2 / wanted).sum() < freedom + 5 * np.sqrt(2 * freedom)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_tokens_follow_the_softmax(temperature):
    tokens, _ = draw_many(SamplingParams(max_new_tokens=1, temperature=temperature))
    logits = logits_with_structure()[0]
    assert chi_square_is_plausible(tokens, softmax(logits / temperature))
    assert not chi_square_is_plausible(tokens, softmax(logits / (1.15 * temperature)))  # the test has power


def test_top_k_and_top_p_renormalise_what_they_keep():
    tokens, _ = draw_many(SamplingParams(max_new_tokens=1, top_k=9, top_p=0.8))
    probabilities = softmax(logits_with_structure()[0])
    order = np.argsort(-probabilities)
    kept = order[:9]
    mass = np.cumsum(probabilities[kept]) / probabilities[kept].sum()
    kept = kept[: 1 + (mass < 0.8).sum()]
    wanted = np.zeros(VOCAB)
    wanted[kept] = probabilities[kept] / probabilities[kept].sum()
    assert set(tokens) == set(kept)
    assert chi_square_is_plausible(tokens, wanted)


@pytest.mark.parametrize(
    "options",
    [{}, {"top_k": 5}, {"top_p": 0.5}, {"repetition_penalty": 1.8}, {"stop_token_ids": (3,), "min_new_tokens": 1}],
)
@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0])
def test_logprobs_are_of_the_policy_whatever_the_filters(options, temperature):
    params = SamplingParams(max_new_tokens=2, temperature=temperature, **options)
    seen = np.zeros((1, VOCAB), bool)
    seen[0, ::2] = True
    tokens, logprobs = draw_many(params, n=200, seen=seen)
    wanted = np.log(softmax(logits_with_structure()[0] / (temperature or 1)))[tokens]
    np.testing.assert_allclose(logprobs, wanted, atol=1e-5)


def test_inverse_cdf_equals_a_plain_cumulative_search():
    logits = logits_with_structure(rows=5000)
    uniforms = np.random.default_rng(1).random(5000)
    tokens, _ = sample_tokens(logits, SamplingParams(max_new_tokens=1), uniforms, np.zeros(5000, np.int64))
    cdf = np.cumsum(softmax(logits), axis=1)
    wanted = [np.searchsorted(row, u * row[-1], side="right") for row, u in zip(cdf, uniforms, strict=True)]
    np.testing.assert_array_equal(tokens, wanted)


@pytest.mark.parametrize("uniform", [0.0, np.nextafter(1.0, 0.0)])
def test_extreme_uniforms_never_draw_an_impossible_token(uniform):
    logits = np.full((1, VOCAB), -np.inf, np.float32)
    logits[0, [70, 100]] = 0.0
    tokens, logprobs = sample_tokens(logits, SamplingParams(max_new_tokens=1), np.array([uniform]), np.zeros(1, int))
    assert tokens[0] == (70 if uniform == 0 else 100)
    assert logprobs[0] == pytest.approx(np.log(0.5))


def test_rounding_at_the_end_of_a_block_does_not_draw_beyond_it():
    # Weights over many orders of magnitude: block sums and cumulative sums round differently.
    logits = np.random.default_rng(0).normal(0, 8, (5000, 64)).astype(np.float32)
    uniforms = np.full(5000, np.nextafter(1.0, 0.0))
    tokens, _ = sample_tokens(logits, SamplingParams(max_new_tokens=1), uniforms, np.zeros(5000, int))
    assert tokens.max() == 63
    logits[:, 40:] = -np.inf
    tokens, _ = sample_tokens(logits, SamplingParams(max_new_tokens=1), uniforms, np.zeros(5000, int))
    assert tokens.max() == 39


@settings(max_examples=50, deadline=None)
@given(
    logit_rows,
    st.integers(0, 200),
    st.floats(0.01, 1),
    st.floats(0.01, 5),
    arrays(np.float64, 3, elements=st.floats(0, 1, exclude_max=True)),
)
def test_sampled_tokens_lie_in_top_k_and_nucleus(logits, top_k, top_p, temperature, uniforms):
    params = SamplingParams(max_new_tokens=1, top_k=top_k, top_p=top_p, temperature=temperature)
    tokens, logprobs = sample_tokens(logits, params, uniforms, np.zeros(3, np.int64))
    assert np.isfinite(logprobs).all()
    assert (logprobs < 1e-5).all()
    for row, token in zip(logits, tokens, strict=True):
        probabilities = softmax(row / np.float32(temperature))
        larger = probabilities > probabilities[token] * (1 + 1e-5)  # less is a tie in float32
        assert top_k == 0 or larger.sum() < top_k
        assert probabilities[larger].sum() < top_p + 1e-4


@settings(max_examples=50, deadline=None)
@given(logit_rows, st.integers(1, 200), st.floats(0.01, 0.99))
def test_filters_keep_enough_and_nothing_below_what_they_drop(logits, k, top_p):
    kept = np.isfinite(keep_top_k(logits, k))
    assert (kept.sum(axis=1) >= min(k, VOCAB)).all()
    weights = softmax(logits).astype(np.float32)
    filtered = keep_top_p(weights, top_p)
    assert (filtered.sum(axis=1) >= (top_p - 1e-5) * weights.sum(axis=1)).all()
    for row, weight in zip(filtered, weights, strict=True):
        assert weight[row == 0].max(initial=0) <= row[row > 0].min()


def test_repetition_penalty_divides_positive_and_multiplies_negative_logits():
    logits = np.array([[2.0, -2.0, 3.0, -3.0]], np.float32)
    seen = np.array([[True, True, False, False]])
    np.testing.assert_allclose(apply_repetition_penalty(logits, seen, 1.6), [[1.25, -3.2, 3.0, -3.0]])


def test_repetition_penalty_equals_paddlenlp():
    import paddle
    from paddlenlp.generation.logits_process import RepetitionPenaltyLogitsProcessor

    logits, ids = logits_with_structure(rows=2), np.array([[3, 8, 8, 149], [0, 1, 2, 3]])
    seen = np.zeros(logits.shape, bool)
    np.put_along_axis(seen, ids, True, axis=1)
    wanted = RepetitionPenaltyLogitsProcessor(1.3)(paddle.to_tensor(ids), paddle.to_tensor(logits))
    np.testing.assert_allclose(apply_repetition_penalty(logits, seen, 1.3), wanted.numpy(), rtol=1e-6)


def test_count_penalties_are_openais_formula():
    logits = logits_with_structure(rows=3)
    completions = [np.array([3, 8, 3, 3]), np.array([], np.int64), np.array([0])]
    params = SamplingParams(max_new_tokens=1, frequency_penalty=0.7, presence_penalty=-1.5)
    wanted = logits.astype(float)
    for row, tokens in enumerate(completions):
        for token in range(VOCAB):
            count = tokens.tolist().count(token)
            wanted[row, token] -= 0.7 * count + (-1.5 if count else 0)
    before = logits.copy()
    np.testing.assert_allclose(apply_count_penalties(logits, completions, params), wanted, rtol=1e-5)
    np.testing.assert_array_equal(logits, before)


def test_repetition_penalty_without_history_is_an_error():
    with pytest.raises(ValueError, match="seen_SV"):
        draw_many(SamplingParams(max_new_tokens=1, repetition_penalty=2.0), n=1)


def test_stop_tokens_are_impossible_before_the_minimum_length_only():
    logits = np.zeros((4, VOCAB), np.float32)
    logits[:, [5, 6]] = 20
    params = SamplingParams(max_new_tokens=9, min_new_tokens=2, stop_token_ids=(5, 6))
    tokens, _ = sample_tokens(logits, params, np.full(4, 0.3), np.array([0, 1, 2, 3]))
    assert not set(tokens[:2]) & {5, 6}
    assert set(tokens[2:]) <= {5, 6}


def test_greedy_takes_the_first_of_ties_and_ignores_the_uniform():
    logits = np.zeros((2, VOCAB), np.float32)
    logits[:, [40, 90]] = 3
    tokens, _ = sample_tokens(
        logits, SamplingParams(max_new_tokens=1, temperature=0), np.array([0, 0.99]), np.zeros(2, int)
    )
    assert tokens.tolist() == [40, 40]


@pytest.mark.parametrize("temperature", [1e-30, 2e-38])  # differences of logits divided by the latter are infinite
def test_a_tiny_temperature_is_greedy_and_does_not_overflow(temperature):
    with np.errstate(all="raise", under="ignore"):
        tokens, logprobs = draw_many(SamplingParams(max_new_tokens=1, temperature=temperature), n=50)
    assert set(tokens) == {int(logits_with_structure()[0].argmax())}
    assert np.all(logprobs == 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_diverged_logits_stop_generation(bad):
    logits = logits_with_structure(rows=3)
    logits[1, 7] = bad
    with pytest.raises(FloatingPointError, match="1 of 3"):
        sample_tokens(logits, SamplingParams(max_new_tokens=1), np.zeros(3), np.zeros(3, int))


@pytest.mark.parametrize("filters", [{}, {"top_p": 0.5}, {"top_k": 3}])
def test_nothing_left_to_draw_stops_generation_instead_of_hanging(filters):
    logits = np.full((1, VOCAB), -np.inf, np.float32)
    logits[0, [3, 5]] = 1.0
    params = SamplingParams(max_new_tokens=2, min_new_tokens=1, stop_token_ids=(3, 5), **filters)
    with pytest.raises(FloatingPointError):
        sample_tokens(logits, params, np.array([0.5]), np.array([0]))


def test_streams_depend_on_seed_and_id_only_and_start_alike():
    one = draw_uniforms(4, 11, 8)
    np.testing.assert_array_equal(one, draw_uniforms(4, 11, 20)[:8])
    others = [draw_uniforms(5, 11, 8), draw_uniforms(11, 4, 8), draw_uniforms(4, 12, 8)]
    assert all(not np.array_equal(one, other) for other in others)
    assert draw_uniforms(-1, -5, 3).shape == (3,)
    np.testing.assert_array_equal(draw_uniforms(4 + 2**64, 11 - 2**65, 8), one)


def test_neighbouring_streams_are_uncorrelated():
    uniforms = np.stack([draw_uniforms(0, stream_id, 200) for stream_id in range(400)])
    correlation = np.corrcoef(uniforms)[np.triu_indices(400, 1)]
    assert abs(correlation.mean()) < 5 / np.sqrt(200 * len(correlation))
    assert np.histogram(uniforms, 10, (0, 1))[0].std() < 5 * np.sqrt(8000)


@pytest.mark.parametrize("filters", [{}, {"top_k": 7}, {"top_p": 0.7}, {"top_k": 20, "top_p": 0.4}])
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_all_samplers_draw_the_same(filters, temperature, penalty):
    rows = 3000
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 2, (rows, VOCAB)).astype(np.float32)
    params = SamplingParams(
        2, 1, temperature=temperature, repetition_penalty=penalty, stop_token_ids=(3, 90), **filters
    )
    arguments = (logits, params, rng.random(rows), rng.integers(0, 2, rows), rng.random((rows, VOCAB)) < 0.2)
    wanted, wanted_logprobs = sampling.sample_tokens(*arguments)
    tokens, logprobs = sample_tokens(*arguments)
    same = tokens == wanted
    assert same.mean() > 0.999  # a number on the border of two tokens may fall to either
    assert np.abs(logprobs - wanted_logprobs)[same].max() < 1e-5


# --- the most probable tokens, in NumPy and on the device


QUARTERS = arrays(np.int64, (2, 70), elements=st.integers(-120, 120))  # whose differences have no rounding


@given(QUARTERS, st.integers(1, 80), st.sampled_from([0.0, 0.5, 1.0]))
def test_they_are_the_highest_of_the_log_softmax(quarters_SV: np.ndarray, k: int, temperature: float) -> None:
    logits_SV = (quarters_SV / 4).astype(np.float32)
    params = SamplingParams(1, temperature=temperature, top_logprobs=k)
    scaled_SV = logits_SV.astype(np.float64) / (temperature or 1.0)
    logprobs_SV = scaled_SV - np.logaddexp.reduce(scaled_SV, axis=1, keepdims=True)
    order_SV = np.argsort(-logits_SV, axis=1, kind="stable")
    own_S = np.arange(len(logits_SV))
    tokens_SK, found_SK = sampling.token_logprobs(logits_SV, own_S, params)[1]
    np.testing.assert_array_equal(tokens_SK, order_SV[:, :k])
    np.testing.assert_allclose(found_SK, np.take_along_axis(logprobs_SV, tokens_SK, axis=1), atol=1e-4)
    on_device_SK, device_SK = gpu_sampling.token_logprobs(paddle.to_tensor(logits_SV), own_S, params)[1]
    np.testing.assert_allclose(device_SK, found_SK, atol=1e-4)
    np.testing.assert_allclose(device_SK, np.take_along_axis(logprobs_SV, on_device_SK, axis=1), atol=1e-4)


def test_a_temperature_that_float32_cannot_divide_by_is_greedy():
    assert SamplingParams(max_new_tokens=1, temperature=1e-40).temperature == 0.0
    assert SamplingParams(max_new_tokens=1, temperature=1e-3).temperature == 1e-3
