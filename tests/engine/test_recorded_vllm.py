"""What a real vLLM 0.32 on a CPU was asked and answered, recorded in vllm_0_32.json."""

from __future__ import annotations

import json
from pathlib import Path

from grrm.engine.api import Request, SamplingParams
from grrm.engine.rollout_wire import ROLLOUT_APIS

EXCHANGES = json.loads((Path(__file__).parent / "vllm_0_32.json").read_text())


def test_what_a_real_vllm_answered_is_read():
    api = ROLLOUT_APIS["vllm"]
    cut, ended = (one for one in EXCHANGES if one["path"] == "/v1/completions" and one["status"] == 200)
    for exchange, reason in ((cut, "length"), (ended, "stop")):
        sent, (choice,) = exchange["body"], exchange["answer"]["choices"]
        stops = tuple(sent["stop_token_ids"])
        params = SamplingParams(sent["max_tokens"], min_new_tokens=sent["min_tokens"], stop_token_ids=stops)
        assert set(json.loads(api.body("policy", Request(sent["prompt"], params)))) == set(sent)
        completion = api.read(json.dumps(exchange["answer"]).encode(), params)
        assert completion.token_ids == choice["token_ids"]
        assert completion.logprobs == choice["logprobs"]["token_logprobs"]
        assert completion.finish_reason == reason
    assert ended["body"]["stop_token_ids"] == [ended["answer"]["choices"][0]["token_ids"][-1]]


def test_steps_of_an_update_are_those_that_a_real_vllm_took():
    accepted = {one["path"]: one for one in EXCHANGES if one["status"] == 200}
    for step in ROLLOUT_APIS["vllm"].steps(Path("/models/policy")):
        exchange = accepted[step.path]
        assert (None if step.body is None else json.loads(step.body)) == exchange["body"]
        step.read(json.dumps(exchange["answer"]).encode(), "")
