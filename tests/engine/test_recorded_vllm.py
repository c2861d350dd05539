"""What a real vLLM 0.32 on a CPU was asked and answered, recorded in vllm_0_32.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import requests
from safetensors.numpy import save_file
from support.rollout_server import RolloutServer

from grrm.engine.api import Request, SamplingParams
from grrm.engine.rollout_wire import ROLLOUT_APIS

# What requests name since then, for a server fills it in from the model's generation_config.json.
NAMED_SINCE = {"top_k", "min_p", "presence_penalty", "frequency_penalty"}
EXCHANGES = json.loads((Path(__file__).parent / "vllm_0_32.json").read_text())


class Recorded:
    """A sampler of the first completion that was recorded, whatever weights it has."""

    def load(self, folder: Path) -> None:
        assert folder.is_dir()

    def take(self, folder: Path, weights: dict[str, Any]) -> None:
        raise NotImplementedError("of FastDeploy alone")

    def draw(self, prompt: list[int], n: int, temperature: float, seed: int) -> tuple[list[int], list[float]]:
        (choice,) = next(one for one in EXCHANGES if one["path"] == "/v1/completions")["answer"]["choices"]
        return choice["token_ids"][:n], choice["logprobs"]["token_logprobs"][:n]


def same_where_both(ours: Any, real: Any) -> bool:
    """True if all of our answer is in the real one: keys, types, lengths of lists, and numbers."""
    if isinstance(ours, dict):
        return all(key in real and same_where_both(value, real[key]) for key, value in ours.items())
    if isinstance(ours, list):
        return len(ours) == len(real) and all(map(same_where_both, ours, real))
    return type(ours) is type(real) and (isinstance(ours, str) or ours == real)


def test_the_stand_in_answers_what_the_real_one_was_asked_as_it_did(tmp_path):
    for name, weight in (("policy", "model.norm.weight"), ("llama", "llama.norm.weight")):
        (tmp_path / name).mkdir()
        save_file({weight: np.zeros(1, np.float32)}, tmp_path / name / "model.safetensors")
    server = RolloutServer("vllm", Recorded(), tmp_path, 0, max_model_len=256)
    try:
        for exchange in EXCHANGES:
            body = json.loads(json.dumps(exchange["body"]).replace("/models", str(tmp_path)))
            answer = requests.request(exchange["method"], server.url + exchange["path"], json=body, timeout=60)
            assert answer.status_code == exchange["status"], exchange["body"]
            assert same_where_both(answer.json(), exchange["answer"]), (answer.json(), exchange["answer"])
    finally:
        server.close()


def test_what_a_real_vllm_answered_is_read():
    api = ROLLOUT_APIS["vllm"]
    cut, ended = (one for one in EXCHANGES if one["path"] == "/v1/completions" and one["status"] == 200)
    for exchange, reason in ((cut, "length"), (ended, "stop")):
        sent, (choice,) = exchange["body"], exchange["answer"]["choices"]
        stops = tuple(sent["stop_token_ids"])
        params = SamplingParams(sent["max_tokens"], min_new_tokens=sent["min_tokens"], stop_token_ids=stops)
        assert set(json.loads(api.body("policy", Request(sent["prompt"], params)))) == set(sent) | NAMED_SINCE
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
