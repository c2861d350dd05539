"""The client against a server on a real socket: requests, deadlines, settings, PaddleNLP's rows."""

from __future__ import annotations

import json
import math
import threading
import time
from datetime import datetime, timezone

import pytest
from support.reward_protocol import TASK, check_right, client, edited, make_groups, ok, raw, right_answer, status
from support.stopped_clock import PATIENCE_S

from grrm.errors import UserError
from grrm.gqm.groups import Candidate, Group, Status
from grrm.http_client.exchange import parse_retry_after
from grrm.rewards.client import RewardClient, RewardServerError


def test_requests_are_split_concurrent_and_reassembled_in_order(start):
    barrier = threading.Barrier(3, timeout=PATIENCE_S)

    def meet(handler, body):
        barrier.wait()
        ok(handler, body)

    server = start(meet)
    groups = make_groups(9)
    settings = {"groups_per_request": 3, "max_connections": 3}
    check_right(groups, client(server.url, **settings).score(groups))
    sizes = [len(json.loads(body)["groups"]) for _, body, _ in server.asked]
    assert sizes == [3, 3, 3]
    assert len({json.loads(body)["request_id"] for _, body, _ in server.asked}) == 3


def test_unscored_candidates_keep_their_status_and_no_number(start):
    def fail_one(answer):
        answer["verdicts"][0]["candidates"][0].update(status="judge_unparsable", score=None)

    verdict = client(start(edited(fail_one)).url).score(make_groups(1))[0]
    assert verdict.statuses == (Status.JUDGE_UNPARSABLE, Status.SCORED)
    assert verdict.scores[0] is None


def chunked(handler, body):
    content = json.dumps(right_answer(body)).encode()
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for start in range(0, len(content), 50):
        piece = content[start : start + 50]
        handler.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
    handler.wfile.write(b"0\r\n\r\n")


def test_chunked_answer_is_read_whole(start):
    groups = make_groups(3)
    check_right(groups, client(start(chunked).url).score(groups))


@pytest.mark.parametrize(
    ("begun", "cause"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", "deadline"),
        (b"HTTP/1.1 200 OK\r\nX: ", r"no answer within the deadline of 0\.4 s"),
    ],
    ids=["content", "headers"],
)
def test_dripping_answer_ends_at_the_deadline(start, begun, cause):
    def drip(handler, body):
        handler.wfile.write(begun)
        for _ in range(200):
            handler.wfile.write(b"x")
            handler.wfile.flush()
            time.sleep(0.05)

    with pytest.raises(RewardServerError, match=cause):
        client(start(drip).url, deadline_s=0.4).score(make_groups(1))


def test_oversized_answer_is_refused(start):
    with pytest.raises(RewardServerError, match="exceeds 100 bytes"):
        client(start(ok).url, max_answer_bytes=100).score(make_groups(5))


def test_one_lost_request_fails_the_whole_call(start):
    server = start(ok, ok, status(422))
    with pytest.raises(RewardServerError) as caught:
        client(server.url, groups_per_request=1, max_connections=1).score(make_groups(6))
    assert caught.value.group_ids == ("g2",)


def test_lone_surrogate_from_a_broken_tokenizer_does_not_stop_the_run(start):
    server = start(ok)
    group = Group("g", TASK, (Candidate("c", "bad \ud800 text", "bad \ud800 text"),))
    assert client(server.url).score([group])[0].statuses == (Status.SCORED,)
    assert json.loads(server.asked[0][1])["groups"][0]["candidates"][0]["response"] == "bad \ufffd text"


def test_failed_extraction_travels_as_null(start):
    server = start(ok)
    client(server.url).score([Group("g", TASK, (Candidate("c", "text", None, 7),))])
    candidate = json.loads(server.asked[0][1])["groups"][0]["candidates"][0]
    assert candidate == {"candidate_id": "0/0", "response": "text", "translation": None, "n_tokens": 7}


def test_token_is_sent_as_bearer(start):
    server = start(ok)
    with client(server.url, token="secret") as reward_client:
        reward_client.score(make_groups(1))
    assert server.asked[0][2]["Authorization"] == "Bearer secret"


def test_proxy_of_the_environment_is_not_used(start, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    groups = make_groups(1)
    check_right(groups, client(start(ok).url).score(groups))


def test_no_groups_need_no_server():
    assert client("http://127.0.0.1:9").score([]) == []
    assert client("http://127.0.0.1:9").score_rows([], [], []) == []


def test_repeated_group_id_is_refused_even_across_requests():
    groups = make_groups(1) + make_groups(1)
    with pytest.raises(ValueError, match="more than once"):
        client("http://127.0.0.1:9", groups_per_request=1).score(groups)


@pytest.mark.parametrize(
    ("urls", "settings", "message"),
    [
        ([], {}, "no reward server is named"),
        (["127.0.0.1:8731"], {}, "not of the form"),
        (["http://host:notaport"], {}, "not of the form"),
        (["ftp://host"], {}, "not of the form"),
        (["http://user:pass@host"], {}, "holds a user name, password or query"),
        (["user:pass@host"], {}, "holds a user name, password or query"),
        (["http://host?token=pass"], {}, "holds a user name, password or query"),
        (["http://h"], {"attempts": 0}, "attempts=0"),
        (["http://h"], {"groups_per_request": 0}, "groups_per_request=0"),
        (["http://h"], {"deadline_s": math.inf}, "deadline_s=inf"),
        (["http://h"], {"read_timeout_s": -1.0}, "read_timeout_s=-1.0"),
        (["http://h"], {"protocol": "grpc"}, "protocol 'grpc' is unknown"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_sentence(urls, settings, message):
    with pytest.raises(UserError, match=message) as caught:
        client(*urls, **settings)
    assert "pass@" not in str(caught.value)
    assert "=pass" not in str(caught.value)


def test_a_text_in_the_place_of_the_list_of_servers_is_one_sentence():
    with pytest.raises(UserError, match="each reward server is named in a list"):
        RewardClient("http://127.0.0.1:9")


def rows_answer(**answer):
    return raw(json.dumps({"error_code": 0, "error_msg": "Success"} | answer).encode())


def test_score_rows_returns_the_floats_of_a_stock_server(start):
    server = start(rows_answer(score=[1.0, -2]))
    assert client(server.url, protocol="paddlenlp").score_rows(["s", "s"], ["t", "t"], ["a", "b"]) == [1.0, -2.0]
    path, body, _ = server.asked[0]
    assert path == "/"
    assert json.loads(body) == {"src": ["s", "s"], "tgt": ["t", "t"], "response": ["a", "b"]}


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (rows_answer(error_code=500, error_msg="division by\nzero", score=[0, 0]), "error 500: division by zero"),
        (rows_answer(score=[1.0]), "1 scores for 2 rows"),
        (rows_answer(score=[1.0, math.nan]), r"score\[1\]"),
        (rows_answer(), "score"),
        (status(422), "HTTP 422"),
    ],
)
def test_score_rows_takes_no_failure_for_a_reward(start, step, message):
    with pytest.raises(RewardServerError, match=message) as caught:
        client(start(step).url, protocol="paddlenlp").score_rows(["s", "s"], ["t", "t"], ["a", "b"])
    assert caught.value.group_ids == ("rows 0 to 1",)


def test_score_rows_refuses_unequal_lengths():
    with pytest.raises(ValueError, match="1, 2, 1"):
        client("http://127.0.0.1:9").score_rows(["s"], ["t", "t"], ["a"])


def test_stock_protocol_has_no_verdicts():
    with pytest.raises(UserError, match="use score_rows"):
        client("http://127.0.0.1:9", protocol="paddlenlp").score(make_groups(1))


def test_wait_until_ready_waits_for_every_server(start):
    late = start(status(503), status(503), raw(b"{}"))
    client(start(raw(b"{}")).url, late.url).wait_until_ready(PATIENCE_S)
    assert late.paths == ["/readyz"] * 3


@pytest.fixture
def no_second_probe(monkeypatch):
    """A server that is not ready is not looked at again in time."""
    monkeypatch.setattr("grrm.rewards.client.PROBE_INTERVAL_S", 2 * PATIENCE_S)


def test_wait_until_ready_gives_up_with_the_last_cause(start, no_second_probe):
    with pytest.raises(RewardServerError, match="HTTP 503"):
        client(start(status(503)).url).wait_until_ready(PATIENCE_S)


def test_every_look_at_a_server_that_is_not_ready_is_an_attempt(start, monkeypatch):
    monkeypatch.setattr("grrm.rewards.client.PROBE_INTERVAL_S", 0.01)
    server = start(status(503))
    with pytest.raises(RewardServerError) as caught:
        client(server.url).wait_until_ready(0.5)
    assert caught.value.attempt >= len(server.asked)


def test_stock_server_is_ready_once_it_speaks_http(start, no_second_probe):
    client(start(status(405)).url, protocol="paddlenlp").wait_until_ready(PATIENCE_S)
    with pytest.raises(RewardServerError, match="refused"):
        client("http://127.0.0.1:9", protocol="paddlenlp").wait_until_ready(PATIENCE_S)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("7", 7.0),
        (" 0 ", 0.0),
        ("soon", None),
        ("-3", None),
        ("Fri, 20 Nov 2026 06:00:30 GMT", 30.0),
        ("Fri, 20 Nov 2026 06:00:30", 30.0),
        ("Fri, 20 Nov 2020 06:00:30 GMT", 0.0),
        ("Fri, 20 Nov 99999999999999999999 06:00:30 GMT", None),
    ],
)
def test_retry_after_forms(value, seconds, monkeypatch):
    now = datetime(2026, 11, 20, 6, 0, 0, tzinfo=timezone.utc).timestamp()
    monkeypatch.setattr("time.time", lambda: now)
    assert parse_retry_after(value) == seconds
