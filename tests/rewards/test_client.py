"""The client against a server that fails in every way it can: real sockets, scripted answers."""

from __future__ import annotations

import json
import math
import socket
import struct
import threading
import time
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from grrm.errors import UserError
from grrm.gqm.groups import Candidate, Group, Status, TranslationTask
from grrm.rewards.client import RewardClient, RewardServerError
from grrm.rewards.exchange import parse_retry_after

TASK = TranslationTask("Hallo", "de", "en", "Hello")
FAST = {"connect_timeout_s": 2.0, "read_timeout_s": 0.3, "deadline_s": 10.0, "attempts": 3, "backoff_initial_s": 0.01}


def make_groups(n_groups: int, n_candidates: int = 2) -> list[Group]:
    return [
        Group(
            f"g{g}",
            TASK,
            tuple(Candidate(f"c{c}", f"text {g} {c}", f"text {g} {c}") for c in range(n_candidates)),
        )
        for g in range(n_groups)
    ]


def expected_score(response: str) -> float:
    return sum(response.encode()) % 11


def right_answer(body: bytes) -> dict:
    request = json.loads(body)
    verdicts = [
        {
            "group_id": group["group_id"],
            "candidates": [
                {
                    "candidate_id": candidate["candidate_id"],
                    "status": "scored",
                    "score": expected_score(candidate["response"]),
                }
                for candidate in group["candidates"]
            ],
            "ranking": None,
            "analysis": "",
            "attempts": 1,
        }
        for group in request["groups"]
    ]
    return {"request_id": request["request_id"], "verdicts": verdicts}


class ScriptedServer:
    """Answers request k with `script[k]`, the last entry for ever; an entry takes (handler, body) and does the rest."""

    def __init__(self, *script):
        self.script = list(script)
        self.requests: list[tuple[str, bytes, dict]] = []
        lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with lock:
                    step = outer.script[min(len(outer.requests), len(outer.script) - 1)]
                    outer.requests.append((self.path, body, dict(self.headers)))
                step(self, body)

            do_GET = do_POST

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.http.handle_error = lambda *args: None  # the client hangs up on purpose in some tests
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def start():
    servers = []

    def build(*script):
        servers.append(ScriptedServer(*script))
        return servers[-1]

    yield build
    for server in servers:
        server.close()


def send(handler, status: int, body: bytes, **headers: str) -> None:
    handler.send_response(status)
    for name, value in ({"Content-Type": "application/json", "Content-Length": str(len(body))} | headers).items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def ok(handler, body):
    send(handler, 200, json.dumps(right_answer(body)).encode())


def status(code: int, message: str = "no", **headers: str):
    problem = json.dumps({"error_code": code, "error_msg": message, "field": "groups[0]", "reference_id": "r1"})
    return lambda handler, body: send(handler, code, problem.encode(), **headers)


def edited(edit):
    """The right answer after `edit(answer)`, sent with Python's lenient JSON (NaN and all)."""

    def step(handler, body):
        answer = right_answer(body)
        edit(answer)
        send(handler, 200, json.dumps(answer).encode())

    return step


def raw(content: bytes):
    return lambda handler, body: send(handler, 200, content)


def reset_mid_answer(handler, body):
    handler.send_response(200)
    handler.send_header("Content-Length", "5000")
    handler.end_headers()
    handler.wfile.write(b'{"request_id":')
    handler.wfile.flush()
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True


def hang_up_early(handler, body):
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def truncated(handler, body):
    content = json.dumps(right_answer(body)).encode()
    send(handler, 200, content[: len(content) // 2], Content_Length=str(len(content)))
    handler.close_connection = True


def slow(handler, body):
    time.sleep(1.0)
    ok(handler, body)


def chunked(handler, body):
    content = json.dumps(right_answer(body)).encode()
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for start in range(0, len(content), 50):
        piece = content[start : start + 50]
        handler.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
    handler.wfile.write(b"0\r\n\r\n")


def client(*urls: str, **settings) -> RewardClient:
    return RewardClient(list(urls), **(FAST | settings))


def check_right(groups, verdicts) -> None:
    assert [len(v.scores) for v in verdicts] == [len(g.candidates) for g in groups]
    for group, verdict in zip(groups, verdicts, strict=True):
        assert list(verdict.scores) == [expected_score(c.response) for c in group.candidates]


def set_score(value):
    return lambda answer: answer["verdicts"][0]["candidates"][0].update(score=value)


def drop_candidate(answer):
    answer["verdicts"][1]["candidates"].pop()


def drop_group(answer):
    answer["verdicts"].pop()


def add_group(answer):
    answer["verdicts"].append(answer["verdicts"][0] | {"group_id": "stranger"})


def repeat_candidate(answer):
    answer["verdicts"][0]["candidates"].append(answer["verdicts"][0]["candidates"][0])


def rank_stranger(answer):
    answer["verdicts"][0]["ranking"] = [["c0"], ["c9"]]


BAD_ANSWERS = {
    "garbage": (raw(b"<html>hello</html>"), "malformed"),
    "empty": (raw(b""), "malformed"),
    "json of another kind": (raw(b"[1, 2]"), "malformed"),
    "not utf-8": (raw(b'"\xff\xfe"'), "malformed"),
    "truncated": (truncated, "connection failed|malformed"),
    "NaN score": (edited(set_score(math.nan)), r"verdicts\[0\].candidates\[0\].score"),
    "infinite score": (edited(set_score(math.inf)), "score"),
    "text score": (edited(set_score("7")), "score"),
    "boolean score": (edited(set_score(True)), "score"),
    "score out of range": (edited(set_score(10.5)), "score"),
    "negative score": (edited(set_score(-0.1)), "score"),
    "null score of a scored candidate": (edited(set_score(None)), "cannot carry"),
    "number for a failed candidate": (
        edited(lambda a: a["verdicts"][0]["candidates"][0].update(status="judge_timeout")),
        "cannot carry",
    ),
    "unknown status": (edited(lambda a: a["verdicts"][0]["candidates"][0].update(status="fine")), "status"),
    "missing candidate": (edited(drop_candidate), "lacks 1 of the candidates of group 'g1', for example 'c1'"),
    "repeated candidate": (edited(repeat_candidate), "repeats"),
    "missing group": (edited(drop_group), "lacks 1 of the groups, for example 'g1'"),
    "unknown group": (edited(add_group), "unknown groups, for example 'stranger'"),
    "wrong request id": (edited(lambda a: a.update(request_id="other")), "request 'other'"),
    "ranking of a stranger": (edited(rank_stranger), "group 'g0': the ranking"),
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_bad_answer_is_retried_and_then_an_error_never_a_number(start, name):
    step, message = BAD_ANSWERS[name]
    server = start(step)
    with pytest.raises(RewardServerError, match=message) as caught:
        client(server.url).score(make_groups(2))
    assert len(server.requests) == 3
    assert caught.value.attempt == 3
    assert caught.value.server == server.url
    assert caught.value.group_ids == ("g0", "g1")


@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_bad_answer_then_a_right_one_gives_the_right_scores(start, name):
    server = start(BAD_ANSWERS[name][0], ok)
    groups = make_groups(2)
    check_right(groups, client(server.url).score(groups))


@pytest.mark.parametrize("step", [reset_mid_answer, hang_up_early, slow, status(408), status(429), status(502)])
def test_passing_failures_are_retried_with_the_same_request(start, step):
    server = start(step, step, ok)
    groups = make_groups(3)
    check_right(groups, client(server.url).score(groups))
    assert len({body for _, body, _ in server.requests}) == 1
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("step", "cause"),
    [
        (reset_mid_answer, "connection failed"),
        (hang_up_early, "connection failed"),
        (slow, "no answer came in time"),
        (status(503, "the judge\n is busy"), r"HTTP 503 at groups\[0\]: the judge is busy \(log reference r1\)"),
    ],
)
def test_lasting_failure_names_server_group_attempt_and_cause(start, step, cause):
    server = start(step)
    with pytest.raises(RewardServerError, match=cause) as caught:
        client(server.url).score(make_groups(2))
    sentence = str(caught.value)
    assert server.url in sentence
    assert "'g0' and 1 more" in sentence
    assert "attempt 3" in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 413, 415, 422, 500, 501, 302, 204])
def test_final_statuses_are_not_retried(start, code):
    server = start(status(code) if code != 204 else lambda handler, body: send(handler, 204, b""))
    with pytest.raises(RewardServerError, match=f"HTTP {code}") as caught:
        client(server.url).score(make_groups(1))
    assert len(server.requests) == 1
    assert caught.value.attempt == 1


def test_status_without_our_error_body_is_named_all_the_same(start):
    def from_proxy(handler, body):
        send(handler, 500, b"<html>Bad gateway</html>")

    with pytest.raises(RewardServerError, match="it answered HTTP 500; check"):
        client(start(from_proxy).url).score(make_groups(1))


def test_unanswered_connection_attempt_is_named():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        with pytest.raises(RewardServerError, match="connection was not accepted in time"):
            client(f"http://127.0.0.1:{port}", connect_timeout_s=0.1, attempts=1).score(make_groups(1))
        for one in waiting:
            one.close()


def test_connection_refused_is_retried_and_then_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RewardServerError, match="connection was refused") as caught:
            client(url).score(make_groups(1))
    assert caught.value.attempt == 3
    assert isinstance(caught.value, UserError)


def test_retry_after_is_honoured(start, caplog):
    groups = make_groups(1)
    check_right(groups, client(start(status(429, Retry_After="1"), ok).url).score(groups))
    assert "group 'g0' (1 in the request), attempt 1: it answered HTTP 429" in caplog.text
    assert "asking again in 1.0 s" in caplog.text


def test_retry_after_beyond_the_deadline_gives_up_at_once(start):
    server = start(status(503, Retry_After="3600"))
    with pytest.raises(RewardServerError, match="deadline of 10 s leaves no time"):
        client(server.url).score(make_groups(1))
    assert len(server.requests) == 1


def test_failed_server_is_left_for_another_at_once(start):
    bad, good = start(status(503, Retry_After="3600")), start(ok)
    groups = make_groups(20)
    check_right(groups, client(bad.url, good.url, groups_per_request=1, max_connections=1).score(groups))
    assert len(bad.requests) == 1
    assert len(good.requests) == 20


def test_requests_spread_over_the_pool(start):
    def slowish(handler, body):
        time.sleep(0.02)
        ok(handler, body)

    servers = [start(slowish), start(slowish)]
    groups = make_groups(12)
    check_right(groups, client(*(s.url for s in servers), groups_per_request=1, max_connections=4).score(groups))
    assert all(server.requests for server in servers)
    assert sum(len(server.requests) for server in servers) == 12


def test_requests_are_split_concurrent_and_reassembled_in_order(start):
    barrier = threading.Barrier(3, timeout=5)

    def meet(handler, body):
        barrier.wait()
        ok(handler, body)

    server = start(meet)
    groups = make_groups(9)
    settings = {"groups_per_request": 3, "max_connections": 3, "read_timeout_s": 6.0}
    check_right(groups, client(server.url, **settings).score(groups))
    sizes = [len(json.loads(body)["groups"]) for _, body, _ in server.requests]
    assert sizes == [3, 3, 3]
    assert len({json.loads(body)["request_id"] for _, body, _ in server.requests}) == 3


def test_answers_in_another_order_are_matched_by_id(start):
    def shuffle(answer):
        answer["verdicts"].reverse()
        for verdict in answer["verdicts"]:
            verdict["candidates"].reverse()

    groups = make_groups(4, 3)
    check_right(groups, client(start(edited(shuffle)).url).score(groups))


def test_unscored_candidates_keep_their_status_and_no_number(start):
    def fail_one(answer):
        answer["verdicts"][0]["candidates"][0].update(status="judge_unparsable", score=None)

    verdict = client(start(edited(fail_one)).url).score(make_groups(1))[0]
    assert verdict.statuses == (Status.JUDGE_UNPARSABLE, Status.SCORED)
    assert verdict.scores[0] is None


def test_chunked_answer_is_read_whole(start):
    groups = make_groups(3)
    check_right(groups, client(start(chunked).url).score(groups))


def test_dripping_answer_ends_at_the_deadline(start):
    def drip(handler, body):
        handler.send_response(200)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        for _ in range(200):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)

    with pytest.raises(RewardServerError, match="deadline"):
        client(start(drip).url, deadline_s=0.4).score(make_groups(1))


def test_dripping_headers_end_at_the_deadline(start):
    def drip(handler, body):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        for _ in range(200):
            handler.wfile.write(b"x")
            handler.wfile.flush()
            time.sleep(0.05)

    with pytest.raises(RewardServerError, match=r"no answer within the deadline of 0\.4 s"):
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
    assert json.loads(server.requests[0][1])["groups"][0]["candidates"][0]["response"] == "bad \ufffd text"


def test_failed_extraction_travels_as_null(start):
    server = start(ok)
    client(server.url).score([Group("g", TASK, (Candidate("c", "text", None, 7),))])
    candidate = json.loads(server.requests[0][1])["groups"][0]["candidates"][0]
    assert candidate == {"candidate_id": "c", "response": "text", "translation": None, "n_tokens": 7}


def test_token_is_sent_as_bearer(start):
    server = start(ok)
    with client(server.url, token="secret") as reward_client:
        reward_client.score(make_groups(1))
    assert server.requests[0][2]["Authorization"] == "Bearer secret"


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
        (["http://h"], {"attempts": 0}, "attempts=0"),
        (["http://h"], {"groups_per_request": 0}, "groups_per_request=0"),
        (["http://h"], {"deadline_s": math.inf}, "deadline_s=inf"),
        (["http://h"], {"read_timeout_s": -1.0}, "read_timeout_s=-1.0"),
        (["http://h"], {"protocol": "grpc"}, "protocol 'grpc' is unknown"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_sentence(urls, settings, message):
    with pytest.raises(UserError, match=message):
        client(*urls, **settings)


def rows_answer(**answer):
    return raw(json.dumps({"error_code": 0, "error_msg": "Success"} | answer).encode())


def test_score_rows_returns_the_floats_of_a_stock_server(start):
    server = start(rows_answer(score=[1.0, -2]))
    assert client(server.url, protocol="paddlenlp").score_rows(["s", "s"], ["t", "t"], ["a", "b"]) == [1.0, -2.0]
    path, body, _ = server.requests[0]
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
    client(start(raw(b"{}")).url, late.url).wait_until_ready(5.0)
    assert [path for path, _, _ in late.requests] == ["/readyz"] * 3


def test_wait_until_ready_gives_up_with_the_last_cause(start):
    with pytest.raises(RewardServerError, match="HTTP 503"):
        client(start(status(503)).url).wait_until_ready(0.5)


def test_stock_server_is_ready_once_it_speaks_http(start):
    client(start(status(405)).url, protocol="paddlenlp").wait_until_ready(1.0)
    with pytest.raises(RewardServerError, match="refused"):
        client("http://127.0.0.1:9", protocol="paddlenlp").wait_until_ready(0.3)


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
def test_retry_after_forms(value, seconds):
    assert parse_retry_after(value, datetime(2026, 11, 20, 6, 0, 0, tzinfo=timezone.utc)) == seconds
