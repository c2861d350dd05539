"""Requests that join the batch of a judge's model, and those whose clients hang up."""

from __future__ import annotations

import re
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from support.judged_groups import judge_over
from support.reward_app import group, reward_app, score_body
from support.reward_servers import reward_server
from support.stepped_engine import SteppedEngine
from support.stopped_clock import eventually
from support.tiny_policy import write_tiny_checkpoint

from grrm.engine.open import over_engine
from grrm.engine.scheduler import BatchScheduler
from grrm.engine.shared import SharedEngine
from grrm.gqm.chat import render_chatml
from grrm.judges.deadline import Deadline
from grrm.judges.sqm import SQMOptions
from grrm_reward_server.hosting import HostedJudge
from grrm_reward_server.settings import Settings


class Numbers:
    """A tokenizer for the stepped engine: a prompt is as many tokens as it has digits, a reply always says 7."""

    eos_token_id = 0

    def __call__(self, text, add_special_tokens=True, return_attention_mask=True):
        return {"input_ids": [1, *map(int, re.findall(r"\d", text))]}

    def convert_tokens_to_ids(self, token):
        return None

    unk_token_id = None

    def decode(self, ids, skip_special_tokens=True, clean_up_tokenization_spaces=True):
        return "Fine.\n7"


@pytest.fixture
def hosted():
    """The application of a single judge whose model a test steps, and that model."""
    engine, deadline = SteppedEngine(stands_still=True), Deadline()
    scheduler = BatchScheduler(engine)
    opened = over_engine(SharedEngine(scheduler, deadline), Numbers(), render_chatml)
    options = SQMOptions(max_new_tokens=4, mode="compat", retries=0)
    judge = judge_over(opened.generator, options, render=opened.render)
    hosted = HostedJudge(judge, deadline=deadline, deadline_s=60, scheduler=scheduler)
    yield reward_app(Settings(), hosted), engine
    engine.go()


def post(app, *groups, request_id, **environment):
    body = score_body(*groups, request_id=request_id)
    return app.flask.test_client().post("/v1/score", json=body, environ_overrides=environment)


def test_a_request_joins_the_batch_of_one_that_is_being_judged(hosted):
    app, engine = hosted
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(post, app, *(group(f"g{n}", f"{n}") for n in range(8)), request_id="first")
        eventually(lambda: engine.entered)
        engine.go(1)
        second = threads.submit(post, app, group("g", "9"), request_id="second")
        eventually(lambda: app.hosted.scheduler.n_running + app.hosted.scheduler.n_waiting == 9)
        engine.go()
        answers = [one.result(120).get_json() for one in (first, second)]
    assert [len(answer["verdicts"]) for answer in answers] == [8, 1]
    assert {c["score"] for a in answers for v in a["verdicts"] for c in v["candidates"]} == {7.0}
    began, ended = (
        pick(place for place, stepped in enumerate(engine.stepped) if number in stepped)
        for pick, number in ((min, 8), (max, 0))
    )
    assert began < ended
    assert len(engine.entered) == 2


def test_what_a_client_that_hangs_up_has_asked_for_leaves_the_batch(hosted):
    app, engine = hosted
    gone = []
    environment = {"waitress.client_disconnected": lambda: bool(gone)}
    with ThreadPoolExecutor(2) as threads:
        leaving = threads.submit(post, app, group("g", "1"), request_id="leaving", **environment)
        staying = threads.submit(post, app, group("g", "2"), request_id="staying")
        eventually(lambda: sum(map(len, engine.entered)) >= 1 and app.hosted.scheduler.n_running >= 1)
        gone.append(True)
        assert leaving.result(120).status_code == 503
        engine.go()
        assert staying.result(120).get_json()["verdicts"][0]["candidates"][0]["score"] == 7.0
    assert "grrm_abandoned_requests_total 1.0" in app.metrics.render()
    assert app.hosted.scheduler.n_running == 0


def test_the_model_of_a_real_server_stops_writing_for_a_client_that_hangs_up(tmp_path):
    folder = write_tiny_checkpoint(tmp_path / "judge", max_positions=200_000)
    options = ["--judge", "sqm", "--model", str(folder), "--judge-option", "max_new_tokens=150000"]
    with reward_server(*options) as (process, url):
        body = requests.Request("POST", f"{url}/v1/score", json=score_body(group("g", "one"))).prepare()
        port = int(url.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port)) as client:
            head = f"POST /v1/score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body.body)}\r\n"
            client.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body.body)
            eventually(lambda: "grrm_judge_calls_total 1.0" in requests.get(f"{url}/metrics", timeout=120).text)
        eventually(lambda: "grrm_abandoned_requests_total 1.0" in requests.get(f"{url}/metrics", timeout=120).text)
        process.terminate()
        assert process.wait(120) == 0
