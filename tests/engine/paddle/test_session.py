"""Requests that join and leave a running batch draw what they draw alone."""

from __future__ import annotations

import numpy as np
import pytest

from grrm.engine.api import Request, SamplingParams
from grrm.engine.paddle.engine import PaddleEngine

SAMPLINGS = [
    SamplingParams(max_new_tokens=12, seed=3),
    SamplingParams(max_new_tokens=5, temperature=0),
    SamplingParams(max_new_tokens=30, temperature=0.7, top_p=0.8, stop_token_ids=(1, 2, 3, 4, 5, 6)),
    SamplingParams(max_new_tokens=9, repetition_penalty=1.4, seed=7, logprobs=False),
    SamplingParams(max_new_tokens=9, top_k=5, min_new_tokens=4, stop_token_ids=tuple(range(30))),
]


@pytest.fixture(params=[True, False], ids=["kernels", "operators"])
def engine(request, model):
    return PaddleEngine(model, max_num_seqs=4, use_kernels=request.param)


def some_requests(n):
    prompts = np.random.default_rng(0).integers(6, 60, (n, 9)).tolist()
    return [Request(prompt, SAMPLINGS[i % len(SAMPLINGS)], 50 + i) for i, prompt in enumerate(prompts)]


def alone(engine, request):
    return engine.generate([request.prompt], request.params, [request.stream_id])[0]


def check_equal(found, expected):
    assert (found.token_ids, found.finish_reason) == (expected.token_ids, expected.finish_reason)
    np.testing.assert_allclose(found.logprobs, expected.logprobs, atol=1e-4)


def test_requests_that_join_between_steps_draw_what_they_draw_alone(engine):
    requests = some_requests(15)
    session = engine.open_session()
    ended, arriving = {}, list(enumerate(requests))
    while arriving or not session.is_idle:
        session.add(dict([arriving.pop(0)] if arriving else []))
        ended.update(session.step())
    for number, request in enumerate(requests):
        check_equal(ended[number], alone(engine, request))


def test_a_cancelled_request_makes_room_and_the_others_do_not_notice(engine):
    requests = some_requests(8)
    session = engine.open_session()
    session.add(dict(enumerate(requests)))
    ended = dict(session.step())
    for number in (0, 2, 7):  # two run, the last one waits
        session.cancel(number)
    session.cancel(99)
    while not session.is_idle:
        ended.update(session.step())
    assert sorted(ended) == [1, 3, 4, 5, 6]
    for number, completion in ended.items():
        check_equal(completion, alone(engine, requests[number]))
    assert session.n_free == 4


def test_drawn_tokens_can_be_seen_before_the_request_ends(engine):
    (request,) = some_requests(1)
    session = engine.open_session()
    session.add({5: request})
    seen, ended = [], {}
    while not ended:
        ended.update(session.step())
        seen += session.generated(5, len(seen))[0]
    expected = alone(engine, request).token_ids
    assert seen == expected[: len(seen)]
    assert len(seen) == len(expected) - 1  # the last comes with the completion


def test_in_plain_operators_a_completion_ends_where_the_session_has_no_more_room(model):
    session = PaddleEngine(model, use_kernels=False).open_session(max_len=16)
    session.add({0: Request([7] * 12, SamplingParams(max_new_tokens=30))})
    ended = {}
    while not ended:
        ended.update(session.step())
    assert (len(ended[0].token_ids), ended[0].finish_reason) == (4, "length")


@pytest.mark.parametrize("use_kernels", [True, False], ids=["kernels", "operators"])
def test_prompts_up_to_a_model_length_that_is_no_multiple_of_the_padding(make_model, use_kernels):
    engine = PaddleEngine(make_model(max_position_embeddings=40), max_num_seqs=4, use_kernels=use_kernels)
    params = SamplingParams(max_new_tokens=8, temperature=0)
    requests = [Request(list(range(5, 5 + n)), params) for n in (39, 38, 20)]
    session, ended = engine.open_session(), {}
    session.add(dict(enumerate(requests)))
    while not session.is_idle:
        ended.update(session.step())
    assert [len(ended[number].token_ids) for number in range(3)] == [1, 2, 8]
    for number, request in enumerate(requests):
        check_equal(ended[number], alone(engine, request))


def test_some_may_take_steps_without_the_others(engine):
    requests = some_requests(4)
    session = engine.open_session()
    session.add(dict(enumerate(requests)))
    ended = {}
    for only in [None, {1}, {1, 3}, {0}, {0, 1}] * 8 + [None] * 40:
        ended.update(session.step(only))
    for number, request in enumerate(requests):
        check_equal(ended[number], alone(engine, request))
