"""Weights of serving engines: which of them take over what, which are asked, and what an update leaves behind."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine.counting_servers import PARAMETERS, PARAMS, Trainer, apis, counting_server, engine
from support.rollout_server import Refused
from support.stopped_clock import stop_client_clock

from grrm.engine.api import Request
from grrm.engine.server_engine import WeightsCheck
from grrm.errors import UserError
from grrm.http_client.client import NoAnswer


@pytest.fixture
def start(closing: ExitStack, tmp_path: Path) -> Any:
    return lambda api, **settings: closing.enter_context(counting_server(tmp_path, api, **settings))


@apis
def test_weights_are_taken_over_between_a_pause_and_going_on_once_a_step(api, start, tmp_path):
    server = start(api, token="s3cret")
    rollouts, trainer = engine(tmp_path, server, token="s3cret")
    for _ in range(2):
        rollouts.update_weights()
    rollouts.update_weights(5)
    (completion,) = rollouts.generate([[3]], PARAMS)
    assert completion.weight_version == 5
    assert completion.logprobs[0] == -5.25
    assert trainer.published == [0, 5]
    assert server.loaded == ["step-0", "step-5"]
    assert server.log[3:6] == STEPS[api]


def test_fastdeploy_reads_no_files_by_the_route_of_its_remote_strategy(start, tmp_path):
    server = start("fastdeploy")
    Trainer(tmp_path, "fastdeploy").publish(0)
    with pytest.raises(Refused, match="No module named 'checkpoint_transfer'"):
        server.answer("/v1/update_weights", b'{"version": "step-0"}')


def test_a_fastdeploy_whose_weights_are_incomplete_answers_no_prompts(start, tmp_path, monkeypatch):
    stop_client_clock(monkeypatch)
    rollouts, trainer = engine(tmp_path, start("fastdeploy"))
    rollouts.update_weights()
    monkeypatch.delitem(PARAMETERS, "lm_head.linear.weight")
    trainer.publish(1)
    monkeypatch.undo()
    stop_client_clock(monkeypatch)
    monkeypatch.setattr(rollouts, "_publish", lambda version: tmp_path)
    rollouts.update_weights(1)
    with pytest.raises(NoAnswer, match=r"parameters not initialized: lm_head\.linear\.weight"):
        rollouts.generate([[3]], PARAMS)


@apis
def test_a_server_that_cannot_take_over_weights_stops_the_run_with_its_reason(api, start, tmp_path, monkeypatch):
    stop_client_clock(monkeypatch)
    server = start(api)
    rollouts, _ = engine(tmp_path, server)
    server.failing.add(TAKE_OVER[api])
    with pytest.raises(UserError, match=rf"generation server {server.url} did not answer to take over weights.*busy"):
        rollouts.update_weights()


STEPS = {
    "fastdeploy": ["/v1/pause", "/v1/sleep?tags=weight", "/v1/wakeup?tags=weight"],
    "vllm": ["/pause?mode=abort&clear_cache=true", "/collective_rpc", "/resume"],
}
RELEASE = {
    "fastdeploy": ["/v1/pause", "/v1/sleep?tags=weight", "/v1/sleep?tags=kv_cache"],
    "vllm": ["/sleep?level=2&mode=abort"],
}
RETURN = {
    "fastdeploy": ["/v1/wakeup?tags=kv_cache", "/v1/wakeup?tags=weight"],
    "vllm": ["/wake_up?tags=weights", "/collective_rpc", "/wake_up?tags=kv_cache"],
}


@apis
def test_a_server_has_no_memory_between_a_rollout_and_the_next_update(api, start, tmp_path):
    server = start(api)
    rollouts, _ = engine(tmp_path, server, releases=True)
    for version in (0, 1, 1):  # an evaluation follows on a step with its weights
        server.log.clear()
        rollouts.update_weights(version)
        assert rollouts.generate([[3]], PARAMS)[0].logprobs[0] == -0.25 - version
        rollouts.sleep()
        asked = [path for path in server.log if path != "/v1/completions"]
        assert asked == [*RELEASE[api], *RETURN[api], *RELEASE[api]]
        assert server.paused
        assert server.asleep == {"weights", "kv_cache"} if api == "vllm" else not server.worker.has_cache


@apis
def test_a_server_that_keeps_its_memory_stops_the_run(api, start, tmp_path, monkeypatch):
    stop_client_clock(monkeypatch)
    server = start(api)
    rollouts, _ = engine(tmp_path, server, releases=True)
    rollouts.update_weights()
    server.failing.add(RELEASE[api][-1])
    with pytest.raises(UserError, match=rf"generation server {server.url} did not answer to drop"):
        rollouts.sleep()


TAKE_OVER = {"fastdeploy": STEPS["fastdeploy"][2], "vllm": STEPS["vllm"][1]}


class Checked:
    """Scores responses as `Counting` does with the weights of the trainer."""

    def __init__(self, limit: float = 0.01) -> None:
        self.weights = 0.0
        requests = [Request([n], PARAMS, n) for n in (3, 20, 45)]
        self.check = WeightsCheck(requests, self.score, limit)

    def score(self, prompts: Any, responses: Any) -> list[np.ndarray]:
        assert len(prompts) == len(responses) == 3
        return [np.asarray([-0.25 * (i + 1) - self.weights for i in range(len(one))]) for one in responses]


@apis
def test_weights_are_checked_on_every_server_after_each_update(api, start, tmp_path):
    servers = start(api), start(api)
    checked = Checked()
    rollouts, _ = engine(tmp_path, *servers, check=checked.check)
    for version in (0, 1):
        checked.weights = float(version)
        rollouts.update_weights(version)
    assert [len(server.requests) for server in servers] == [6, 6]
    assert all(request["logprobs"] == 1 for server in servers for request in server.requests)


@apis
def test_a_server_that_keeps_older_weights_stops_the_run_with_the_likely_cause(api, start, tmp_path, monkeypatch):
    steady, stale = start(api), start(api)
    checked = Checked()
    rollouts, _ = engine(tmp_path, steady, stale, check=checked.check)
    rollouts.update_weights()
    for way in ("load", "take"):
        monkeypatch.setattr(stale.sampler, way, lambda *_: None)
        monkeypatch.setattr(steady.sampler, way, lambda *_: setattr(steady.sampler, "weights", 0.02))
    checked.weights = 0.02
    sentence = rf"rollout server {stale.url} .* update to step 1, by 0.02 .* 3 prompts: probably it kept earlier"
    with pytest.raises(UserError, match=sentence):
        rollouts.update_weights(1)


@apis
@pytest.mark.parametrize("difference", [0.5, float("nan")])
def test_a_server_with_another_model_stops_the_run_at_the_first_update(api, difference, start, tmp_path):
    checked = Checked()
    checked.weights = difference
    rollouts, _ = engine(tmp_path, start(api), check=checked.check)
    with pytest.raises(UserError, match="or serves another model"):
        rollouts.update_weights()


@apis
def test_a_server_is_not_left_paused_by_an_update_that_fails(api, start, tmp_path, monkeypatch):
    stop_client_clock(monkeypatch)
    servers = start(api), start(api)
    rollouts, _ = engine(tmp_path, *servers)
    servers[0].failing.add(STEPS[api][1])
    with pytest.raises(UserError):
        rollouts.update_weights()
    assert not any(server.paused for server in servers)


@apis
def test_a_server_that_an_earlier_run_left_paused_is_used(api, start, tmp_path):
    server = start(api)
    server.paused = True
    rollouts, _ = engine(tmp_path, server)
    rollouts.update_weights()
    assert rollouts.generate([[3]], PARAMS)[0].weight_version == 0


@apis
def test_a_server_may_miss_as_many_updates_as_allowed_and_catches_up(api, start, tmp_path):
    steady, away = start(api), start(api)
    rollouts, _ = engine(tmp_path, steady, away, max_staleness=1)
    rollouts.update_weights()
    away.failing.add(STEPS[api][0])
    rollouts.update_weights(1)
    versions = {one.weight_version for one in rollouts.generate([[n] for n in range(30)], PARAMS)}
    assert versions == {0, 1}
    rollouts.update_weights(2)  # now it is two behind
    asked = len(away.requests)
    assert {one.weight_version for one in rollouts.generate([[n] for n in range(30)], PARAMS)} == {2}
    assert len(away.requests) == asked
    away.failing.clear()
    rollouts.update_weights(3)
    assert {one.weight_version for one in rollouts.generate([[n] for n in range(30)], PARAMS)} == {3}
    assert len(away.requests) > asked


@apis
def test_a_server_cut_off_amid_an_update_is_not_asked_before_the_next(api, start, tmp_path):
    steady, broken = start(api), start(api)
    rollouts, _ = engine(tmp_path, steady, broken, max_staleness=3)
    broken.failing.add(TAKE_OVER[api])
    rollouts.update_weights()
    rollouts.generate([[n] for n in range(10)], PARAMS)
    assert not broken.requests


@apis
def test_a_server_that_does_not_answer_the_check_is_not_used_before_the_next_update(api, start, tmp_path, monkeypatch):
    steady, mute = start(api), start(api)
    checked = Checked()
    rollouts, _ = engine(tmp_path, steady, mute, max_staleness=1, check=checked.check)
    monkeypatch.setattr(mute.sampler, "draw", lambda *_: 1 / 0)
    rollouts.update_weights(0)
    asked = len(mute.requests)
    assert len(rollouts.generate([[n] for n in range(30)], PARAMS)) == 30
    assert len(mute.requests) == asked > 0
    monkeypatch.undo()
    checked.weights = 1.0
    rollouts.update_weights(1)
    assert len(mute.requests) == asked + 3
    monkeypatch.setattr(mute.sampler, "draw", lambda *_: 1 / 0)
    monkeypatch.setattr(steady.sampler, "draw", lambda *_: 1 / 0)
    with pytest.raises(NoAnswer):
        rollouts.update_weights(2)


@apis
def test_a_server_that_missed_the_first_update_has_weights_of_its_own_and_is_not_asked(api, start, tmp_path):
    steady, away = start(api), start(api)
    rollouts, _ = engine(tmp_path, steady, away, max_staleness=1)
    away.failing.add(STEPS[api][0])
    rollouts.update_weights(50)
    assert {one.weight_version for one in rollouts.generate([[n] for n in range(30)], PARAMS)} == {50}
    assert not away.requests


@apis
def test_an_answer_of_staler_weights_than_allowed_is_refused(api, start, tmp_path):
    server = start(api)
    rollouts, _ = engine(tmp_path, server)
    for version in (0, 4):
        rollouts.update_weights(version)
    server.version = 4
    assert rollouts.generate([[3]], PARAMS)[0].weight_version == 4
    server.version = 0  # as after a restart
    with pytest.raises(NoAnswer, match="drew with weights of step 0, and the trainer is at 4"):
        rollouts.generate([[3]], PARAMS)
