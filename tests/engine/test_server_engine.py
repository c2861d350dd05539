"""Rollouts on serving engines: what is asked, what comes back, and what is refused, by two servers' schemas."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine.counting_servers import PARAMS, STOP, VOCAB, apis, counting_server, engine
from support.rollout_server import MODEL

from grrm.engine.api import Completion, SamplingParams
from grrm.errors import UserError
from grrm.http_client.client import NoAnswer


@pytest.fixture
def start(closing: ExitStack, tmp_path: Path) -> Any:
    return lambda api, **settings: closing.enter_context(counting_server(tmp_path, api, **settings))


@apis
def test_completions_hold_what_was_drawn_and_nothing_that_the_server_adds(api, start, tmp_path):
    rollouts, _ = engine(tmp_path, start(api))
    rollouts.update_weights()
    cut, ended, at_once = rollouts.generate([[3, 1], [45], [47]], PARAMS)
    assert cut == Completion([4, 5, 6, 7], [-0.25, -0.5, -0.75, -1.0], "length", 0)
    assert ended == Completion([46, 47, STOP], [-0.25, -0.5, -0.75], "stop", 0)
    assert at_once == Completion([STOP], [-0.25], "stop", 0)


@apis
def test_a_sample_is_keyed_by_seed_and_stream_and_not_by_its_neighbours(api, start, tmp_path):
    server = start(api)
    rollouts, _ = engine(tmp_path, server)
    rollouts.update_weights()
    rollouts.generate([[1], [2]], PARAMS, stream_ids=[10, 11])
    rollouts.generate([[2]], PARAMS, stream_ids=[11])
    by_prompt = [(request["prompt"], request["seed"]) for request in server.requests]
    assert len({seed for _, seed in by_prompt}) == 2
    assert by_prompt[2] in by_prompt[:2]
    assert all(request["model"] == MODEL for request in server.requests)


@apis
def test_greedy_translations_need_no_log_probabilities(api, start, tmp_path):
    rollouts, _ = engine(tmp_path, start(api))
    rollouts.update_weights()
    params = SamplingParams(max_new_tokens=2, temperature=0.0, stop_token_ids=(STOP,), logprobs=False)
    assert rollouts.generate([[3]], params) == [Completion([4, 5], [], "length", 0)]


@apis
def test_nothing_is_left_to_the_generation_config_of_the_servers_model(api, start, tmp_path):
    server = start(api)
    rollouts, _ = engine(tmp_path, server)
    rollouts.update_weights()
    rollouts.generate([[3]], replace(PARAMS, top_k=5))
    (request,) = server.requests
    penalties = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    assert request.items() >= ({"temperature": 1.0, "top_p": 1.0, "top_k": 5, "min_p": 0.0} | penalties).items()


@apis
def test_completions_are_told_of_one_at_a_time_as_they_come(api, start, tmp_path):
    rollouts, _ = engine(tmp_path, start(api), start(api))
    rollouts.update_weights()
    told: dict[int, Completion] = {}
    completions = rollouts.generate([[n] for n in range(20)], PARAMS, on_finished=told.__setitem__)
    assert [told[n] for n in range(20)] == completions


def test_tokens_beyond_the_vocabulary_are_those_of_another_model(start, tmp_path, monkeypatch):
    server = start("vllm")
    monkeypatch.setattr(server.sampler, "draw", lambda *_: ([VOCAB, STOP], [-1.0, -1.0]))
    rollouts, _ = engine(tmp_path, server)
    rollouts.update_weights()
    with pytest.raises(UserError, match="drew token 50 of a vocabulary larger than the policy's of 50"):
        rollouts.generate([[3]], PARAMS)


def test_a_server_that_others_pause_during_a_rollout_ends_it_at_the_deadline(start, tmp_path):
    server = start("vllm")
    rollouts, _ = engine(tmp_path, server, deadline_s=3.0)
    rollouts.update_weights()
    server.paused = True
    with pytest.raises(NoAnswer, match=r"deadline of 3 s"):
        rollouts.generate([[3]], PARAMS)


@pytest.mark.parametrize(
    ("choice", "cause"),
    [
        ({"token_ids": [1, 2]}, "2 token ids and 0 log-probabilities"),
        ({"logprobs": {"token_logprobs": [-1.0]}}, "no token ids and 1"),
        ({"token_ids": [1, 2], "logprobs": {"token_logprobs": [-1.0]}}, "2 token ids and 1"),
        ({"token_ids": [1], "logprobs": {"token_logprobs": [-1.0]}}, "ended after 1 tokens without a stop token"),
        ({"token_ids": [STOP], "logprobs": {"token_logprobs": [-9999.0]}}, "calls impossible"),
        ({"token_ids": [STOP], "logprobs": {"token_logprobs": [0.7]}}, "malformed"),
        ({"token_ids": [-1], "logprobs": {"token_logprobs": [-1.0]}}, "malformed"),
        ({"token_ids": [STOP], "logprobs": {"token_logprobs": [-1.0]}, "finish_reason": "abort"}, "'abort'"),
    ],
)
def test_a_completion_that_is_not_whole_is_none(choice, cause, start, tmp_path, monkeypatch):
    server = start("vllm")
    rollouts, _ = engine(tmp_path, server)
    rollouts.update_weights()
    monkeypatch.setattr(server, "complete", lambda content: {"choices": [{"finish_reason": "stop", **choice}]})
    with pytest.raises(NoAnswer, match=cause):
        rollouts.generate([[3]], PARAMS)


def test_what_a_server_would_do_otherwise_is_refused_before_it_is_asked(start, tmp_path):
    for api, settings, sentence in (
        ("fastdeploy", {"min_new_tokens": 1}, "set min_dec_len: 0"),
        ("vllm", {"temperature": 0.7}, "set temperature: 1"),
        ("vllm", {"top_logprobs": 2}, "not asked for top_logprobs"),
    ):
        server = start(api)
        rollouts, _ = engine(tmp_path, server)
        with pytest.raises(UserError, match=sentence):
            rollouts.generate([[3]], SamplingParams(max_new_tokens=4, **settings))
        with pytest.raises(UserError, match="outside the model's vocabulary"):
            rollouts.generate([[VOCAB]], PARAMS)
        assert not server.log
