"""Blocks on demand: fewer than all sequences need change nothing that is drawn, only when it is computed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grrm.engine.api import Request, SamplingParams
from grrm.engine.block_cache import BLOCK
from grrm.engine.paddle.cpu_decoder import CpuDecoder
from grrm.engine.paddle.engine import PaddleEngine
from grrm.engine.scheduler import BatchScheduler

SEEDS = st.integers(0, 2**31)


@pytest.fixture(scope="module")
def long_model(make_model):
    model = make_model("qwen2", max_position_embeddings=512)
    if CpuDecoder.unsupported_reason(model):
        pytest.skip("the C++ decoder does not run this here")
    return model


def drawn(model, prompts, params, blocks=None):
    """Completions of an engine whose cache has so many blocks, and what it made of the cache."""
    room = 1 << 40 if blocks is None else blocks * CpuDecoder(model).cache_bytes(BLOCK)
    engine = PaddleEngine(model, max_num_seqs=12, max_cache_bytes=room)
    return engine.generate(prompts, params), engine.cache_use


def assert_same(found, wanted):
    """The same tokens, and log-probabilities but for rounding: other rows beside one may change its last bit."""
    for one, other in zip(found, wanted, strict=True):
        assert (one.token_ids, one.finish_reason) == (other.token_ids, other.finish_reason)
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)


@given(SEEDS, st.integers(1, 14), st.sampled_from([1.0, 1.3]))
# The same examples each time: of enough others one comes to a draw that the last bit decides.
@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_small_cache_draws_the_same_tokens_as_a_large_one(long_model, seed, blocks, penalty):
    rng = np.random.default_rng(seed)
    groups = [rng.integers(6, 90, rng.integers(1, 150)).tolist() for _ in range(rng.integers(1, 5))]
    prompts = [prompt for prompt in groups for _ in range(rng.integers(1, 5))]
    params = SamplingParams(90, temperature=0.9, seed=seed, stop_token_ids=(3,), repetition_penalty=penalty)
    wanted, whole = drawn(long_model, prompts, params)
    found, use = drawn(long_model, prompts, params, blocks)
    assert_same(found, wanted)
    assert whole.n_preempted == 0
    assert use.max_running <= whole.max_running


def test_sequences_that_grow_together_are_set_aside_and_finish(long_model):
    prompts = [[token] * 50 for token in range(10, 18)]
    params = SamplingParams(130, seed=4, top_logprobs=2)
    wanted, whole = drawn(long_model, prompts, params)
    found, use = drawn(long_model, prompts, params, blocks=9)
    assert_same(found, wanted)
    for one, other in zip(found, wanted, strict=True):
        assert len(one.top_logprobs) == len(one.token_ids)
        assert [top[0][0] for top in one.top_logprobs] == [top[0][0] for top in other.top_logprobs]
    assert (whole.max_running, whole.n_preempted) == (8, 0)
    assert use.n_preempted > 0
    assert use.full_length == 3, "of up to 180 tokens, three blocks each"
    assert use.max_running > use.full_length, "more run while they are short than there is room for at their end"


def engine_of_eight_blocks(model, n_slots=4):
    room = 512 // BLOCK * CpuDecoder(model).cache_bytes(BLOCK)
    return PaddleEngine(model, max_num_seqs=n_slots, max_cache_bytes=room)


def test_a_step_of_requests_that_all_wait_for_blocks_is_one_of_the_others(long_model):
    session = engine_of_eight_blocks(long_model).open_session()
    session.add({0: Request([20] * 400, SamplingParams(60))})
    session.step()
    session.add({1: Request([21] * 130, SamplingParams(4))})
    n_tokens = len(session.generated(0).token_ids)
    session.step({1})
    assert not session.generated(1).token_ids
    assert len(session.generated(0).token_ids) == n_tokens + 1


def test_a_small_submission_does_not_wait_behind_a_large_one_that_waits_for_blocks(long_model):
    scheduler = BatchScheduler(engine_of_eight_blocks(long_model, n_slots=64))
    large = scheduler.submit([Request([number] * 200, SamplingParams(8)) for number in range(40)])  # two run at a time
    n_ended = int(large.next(60) is not None)
    small = scheduler.submit([Request([7] * 10, SamplingParams(8))])
    assert small.next(60) is not None
    while large.next(0) is not None:
        n_ended += 1
    assert 0 < n_ended < 20


def test_a_request_that_was_set_aside_can_be_followed_and_cancelled(long_model):
    session = engine_of_eight_blocks(long_model).open_session()
    session.add({number: Request([20 + number] * 10, SamplingParams(240), number) for number in (0, 1, 2)})
    steps = 0
    while not session.n_preempted:
        session.step()
        steps += 1
    assert 10 + steps > 2 * BLOCK, "three sequences of three blocks are more than eight"
    session.step()
    (aside,) = (number for number in (0, 1, 2) if len(session.generated(number)[0]) == steps)
    tokens, logprobs, *_ = session.generated(aside, start=5)
    assert len(tokens) == len(logprobs) == steps - 5, "it waits with all that it has drawn"
    session.cancel(aside)
    ended = {}
    while not session.is_idle:
        ended.update(session.step())
    assert set(ended) == {0, 1, 2} - {aside}
