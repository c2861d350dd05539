"""What surrounds both protocols: routes, token, readiness, counters, logs."""

from __future__ import annotations

import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.reward_app import (
    RecordingJudge,
    create_app,
    fail,
    group,
    make_client,
    request_at_the_judge,
    reward_app,
    rows_body,
    score_body,
)
from support.stopped_clock import stop_clock

from grrm_reward_server.hosting import HostedJudge
from grrm_reward_server.settings import Settings


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/score", 405), ("DELETE", "/", 405), ("GET", "/nowhere", 404), ("POST", "/healthz", 405)],
)
def test_wrong_routes_get_json_too(method, path, status):
    answer = make_client().open(path, method=method)
    assert (answer.status_code, answer.get_json()["error_code"]) == (status, status)
    assert ("Allow" in answer.headers) == (status == 405)


def test_browser_forms_are_refused():
    answer = make_client().post("/v1/score", data=json.dumps(score_body()), content_type="text/plain")
    assert answer.status_code == 415


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer wrong", "secret", "Basic secret", "Bearer sécret"])
def test_every_route_but_liveness_asks_for_the_token(header):
    judge = RecordingJudge()
    client = make_client(judge, token="secret")
    headers = {} if header is None else {"Authorization": header}
    for method, path in [("POST", "/"), ("POST", "/v1/score"), ("GET", "/readyz"), ("GET", "/metrics"), ("GET", "/x")]:
        answer = client.open(path, method=method, json=score_body(), headers=headers)
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert client.get("/healthz").status_code == client.head("/healthz").status_code == 200  # as wget --spider asks
    assert judge.calls == []


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_the_token_is_accepted_whatever_the_case_of_its_scheme(scheme):
    client = make_client(token="secret")
    assert client.get("/metrics", headers={"Authorization": f"{scheme} secret"}).status_code == 200


def test_readiness_follows_the_judge():
    state = {"broken": True}
    judge = RecordingJudge(lambda: fail() if state["broken"] else None)
    client = make_client(judge)
    assert client.get("/readyz").status_code == 503
    state["broken"] = False
    assert client.get("/readyz").status_code == 200
    n_calls = len(judge.calls)
    assert client.get("/readyz").status_code == 200
    assert len(judge.calls) == n_calls, "a judge that answers is not asked again"
    state["broken"] = True
    client.post("/v1/score", json=score_body())
    assert client.get("/readyz").status_code == 503


def test_readiness_probes_do_not_queue_behind_a_judge_that_has_not_answered_yet():
    with request_at_the_judge() as (client, _, _), ThreadPoolExecutor(1) as threads:
        assert threads.submit(lambda: client().get("/readyz").status_code).result(120) == 503
    assert client().get("/readyz").status_code == 200


def test_metrics_count_requests_and_statuses():
    client = make_client()
    assert client.get("/readyz").status_code == 200, "which tries the judge on a group that no client sent"
    assert "\ngrrm_groups_total 0.0\n" in client.get("/metrics").text
    assert "\ngrrm_judge_calls_total 0.0\n" in client.get("/metrics").text
    client.post(
        "/v1/score", json=score_body(group(candidates=[{"candidate_id": "c", "response": ""}]), group("h", "a"))
    )
    client.post("/v1/score", data=b"{", content_type="application/json")
    text = client.get("/metrics").text
    for line in [
        'grrm_requests_total{code="200",route="/v1/score"} 1.0',
        'grrm_requests_total{code="400",route="/v1/score"} 1.0',
        'grrm_candidates_total{status="unparsable_candidate"} 1.0',
        'grrm_candidates_total{status="scored"} 1.0',
        "grrm_groups_total 2.0",
    ]:
        assert line in text.splitlines()


def test_texts_are_not_logged_at_info(caplog):
    caplog.set_level(logging.INFO)
    client = make_client()
    secret = "Streng geheim"
    client.post("/", json=rows_body(1, src=[secret], response=[secret], tgt=[secret]))
    client.post("/v1/score", json=score_body(group("g", secret, source=secret)))
    client.post("/v1/score", json=score_body(group("g", secret, source=[secret])))
    assert "POST /v1/score 200" in caplog.text
    assert secret not in caplog.text


def test_defect_of_the_server_is_a_clean_500(monkeypatch, caplog):
    app = reward_app(Settings(), RecordingJudge(), None)
    monkeypatch.setattr(app.cache, "get_or_compute", lambda *args: 1 / 0)
    answer = app.flask.test_client().post("/v1/score", json=score_body())
    assert answer.status_code == 500
    assert "ZeroDivisionError" not in answer.text
    assert answer.get_json()["reference_id"] in caplog.text


@pytest.mark.parametrize(("deadline", "call_s", "limit_s"), [({"judge_deadline_s": 1.5}, 0, 1.5), ({}, 20, 200)])
def test_server_is_not_ready_while_its_judge_hangs_and_again_once_it_answers(monkeypatch, deadline, call_s, limit_s):
    """It hangs beyond its deadline or, without one, from ten times the longest call so far on."""
    clock = stop_clock(monkeypatch, "grrm_reward_server.service")
    began, release = threading.Event(), threading.Event()

    def work():
        if len(judge.calls) == 2:
            began.set()
            assert release.wait(120)
        clock.sleep(call_s)

    judge = RecordingJudge(work)
    client = create_app(Settings(**deadline), judge).test_client()
    assert client.get("/readyz").status_code == 200
    with ThreadPoolExecutor(1) as threads:
        held = threads.submit(lambda: client.application.test_client().post("/v1/score", json=score_body()))
        assert began.wait(120)
        clock.sleep(limit_s - 0.5)
        assert client.get("/readyz").status_code == 200
        clock.sleep(1)
        answer = client.get("/readyz")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert client.get("/healthz").status_code == 200
        release.set()
        assert held.result(120).status_code == 200
    assert client.get("/readyz").status_code == 200


def test_server_is_not_ready_while_its_model_hangs_after_the_deadline_of_the_client(monkeypatch):
    clock, waiting = stop_clock(monkeypatch, "grrm_reward_server.service"), []
    client = create_app(Settings(), HostedJudge(RecordingJudge(), when_idle=waiting.append)).test_client()
    assert client.post("/v1/score", json=score_body()).status_code == client.get("/readyz").status_code == 200
    clock.sleep(61)
    assert client.get("/readyz").status_code == 503
    for act in waiting:
        act()
    assert client.get("/readyz").status_code == 200


def test_one_score_for_everything_raises_an_alarm(caplog):
    client = make_client()
    for number in range(130):
        client.post("/v1/score", json=score_body(group("g", "12345", "abcde"), request_id=str(number)))
    alarms = [record.getMessage() for record in caplog.records if "same score" in record.getMessage()]
    assert [message.split()[5] for message in alarms] == ["64", "128", "256"]
    assert alarms[0].startswith("judge recording gave its last 64 translations the same score, 5")
    assert "grrm_constant_score_alarms_total 3.0" in client.get("/metrics").get_data(as_text=True)
