"""Failures that pass, failures that last, and servers of a pool that take over."""

from __future__ import annotations

import socket
import struct
import threading

import pytest
from support.local_server import refusing_url
from support.reward_protocol import check_right, client, make_groups, ok, status
from support.stopped_clock import PATIENCE_S, stop_client_clock

from grrm.errors import UserError
from grrm.rewards.client import RewardServerError


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


def silent(handler, body):
    """No answer, for as long as the client waits for one."""
    handler.rfile.read(1)
    handler.close_connection = True


@pytest.mark.parametrize("step", [reset_mid_answer, hang_up_early, silent, status(408), status(429), status(504)])
def test_passing_failures_are_retried_with_the_same_request(start, step):
    def second(handler, body):
        asking.http.exchange.read_timeout_s = PATIENCE_S  # what comes now is answered
        step(handler, body)

    server = start(step, second, ok)
    asking, groups = client(server.url, read_timeout_s=1.0 if step is silent else PATIENCE_S), make_groups(3)
    check_right(groups, asking.score(groups))
    assert len({body for _, body, _ in server.asked}) == 1
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("step", "cause"),
    [
        (reset_mid_answer, "connection failed"),
        (hang_up_early, "connection failed"),
        (silent, "no answer came in time"),
        (status(504, "the judge\n is late"), r"HTTP 504 at groups\[0\]: the judge is late \(log reference r1\)"),
    ],
)
def test_lasting_failure_names_server_group_attempt_and_cause(start, step, cause):
    server = start(step)
    with pytest.raises(RewardServerError, match=cause) as caught:
        client(server.url, read_timeout_s=0.3 if step is silent else PATIENCE_S).score(make_groups(2))
    sentence = str(caught.value)
    assert server.url in sentence
    assert "'g0' and 1 more" in sentence
    assert "attempt 3" in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 413, 415, 422, 500, 501, 302, 204])
def test_final_statuses_are_not_retried(start, code):
    server = start(status(code) if code != 204 else lambda handler, body: handler.reply(204, b""))
    remedy = "check that it runs" if code in (500, 501) else "correct its address, the token or the request"
    with pytest.raises(RewardServerError, match=f"HTTP {code}.*; {remedy}") as caught:
        client(server.url).score(make_groups(1))
    assert len(server.asked) == 1
    assert caught.value.attempt == 1


def test_status_without_our_error_body_is_named_all_the_same(start):
    def from_proxy(handler, body):
        handler.reply(500, b"<html>Bad gateway</html>")

    with pytest.raises(RewardServerError, match="it answered HTTP 500; check"):
        client(start(from_proxy).url).score(make_groups(1))


@pytest.mark.parametrize(
    ("code", "content", "headers", "cause"),
    [
        (308, b"", {"Location": "https://b.example/x?key=s3cret"}, "HTTP 308, a redirect to https://b.example/x;"),
        (307, b"", {"Location": "https://me:s3cret@b.example/"}, "HTTP 307;"),
        (404, {"detail": "Not Found"}, {}, "HTTP 404: Not Found;"),  # as FastAPI says it
        (422, {"detail": [{"msg": "Field required"}], "error": {"message": "wrong"}}, {}, "HTTP 422: wrong;"),
    ],
)
def test_a_refusal_says_what_the_server_does(start, code, content, headers, cause):
    server = start(lambda handler, body: handler.reply(code, content, **headers))
    with pytest.raises(RewardServerError, match=f"it answered {cause}") as caught:
        client(server.url).score(make_groups(1))
    assert "s3cret" not in str(caught.value)


def test_missing_file_of_authorities_is_named_at_once(start, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such.pem")
    url = start(status(500)).url.replace("http:", "https:")
    with pytest.raises(
        RewardServerError, match=r"attempt 1: REQUESTS_CA_BUNDLE names '/no/such\.pem', which is not there"
    ):
        client(url).score(make_groups(1))


def test_unanswered_connection_attempt_is_named():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        with pytest.raises(RewardServerError, match=r"connection was not accepted in time \(the deadline of 2 s"):
            client(f"http://127.0.0.1:{port}", connect_timeout_s=0.1, deadline_s=2.0, attempts=1).score(make_groups(1))
        for one in waiting:
            one.close()


@pytest.mark.parametrize("step", [status(503), status(503, Retry_After="0"), status(429), status(502)])
def test_busy_server_costs_time_but_no_attempt(start, step):
    server = start(*[step] * 8, ok)
    groups = make_groups(3)
    check_right(groups, client(server.url, attempts=1, backoff_max_s=0.1).score(groups))
    assert len(server.asked) == 9


def test_refused_connections_last_until_the_deadline_and_are_then_named(monkeypatch, caplog):
    clock = stop_client_clock(monkeypatch)
    with refusing_url() as url:
        start_s = clock.now
        with pytest.raises(RewardServerError, match=r"connection was refused \(the deadline of 100 s") as caught:
            client(url, attempts=1, deadline_s=100.0, backoff_max_s=5.0).score(make_groups(1))
    assert 80 < clock.now - start_s <= 100
    assert caught.value.attempt > 10
    assert isinstance(caught.value, UserError)
    assert len(caplog.records) < caught.value.attempt / 2


@pytest.mark.parametrize(("code", "n_asked"), [(500, [1, 1]), (422, [0, 1])])
def test_500_is_final_once_all_members_gave_it_and_a_refusal_at_once(start, code, n_asked):
    servers = [start(status(code)), start(status(code))]
    with pytest.raises(RewardServerError, match=rf"HTTP {code} at groups\[0\]: no \(log reference r1\)"):
        client(*(server.url for server in servers)).score(make_groups(1))
    assert sorted(len(server.asked) for server in servers) == n_asked


def test_retry_after_is_honoured(start, caplog):
    groups = make_groups(1)
    check_right(groups, client(start(status(429, Retry_After="1"), ok).url).score(groups))
    assert "group 'g0' (1 in the request), attempt 1: it answered HTTP 429" in caplog.text
    assert "asking again in 1.0 s" in caplog.text


def test_retry_after_beyond_the_deadline_does_not_end_the_call(start):
    server = start(status(503, Retry_After="3600"), ok)
    groups = make_groups(1)
    check_right(groups, client(server.url).score(groups))
    assert len(server.asked) == 2


def test_a_server_that_says_an_hour_is_asked_again_where_the_others_are_gone(start, monkeypatch):
    stop_client_clock(monkeypatch)
    back = start(status(503, Retry_After="3600"), ok)
    groups = make_groups(1)
    with refusing_url() as gone:
        check_right(groups, client(back.url, gone).score(groups))
    assert len(back.asked) == 2


def test_server_that_says_an_hour_again_and_again_is_asked_until_the_deadline(start, monkeypatch):
    clock = stop_client_clock(monkeypatch)
    server, start_s = start(status(503, Retry_After="3600")), clock.now
    with pytest.raises(RewardServerError, match="deadline of 240 s leaves no time"):
        client(server.url).score(make_groups(1))
    assert 220 < clock.now - start_s <= 240
    assert len(server.asked) > 10


@pytest.mark.parametrize(
    ("failure", "n_asked"), [(status(500), 20), (status(503, Retry_After="3600"), 1), (status(504), 1)]
)
def test_request_that_fails_is_tried_at_another_member_at_once(start, failure, n_asked):
    bad, good = start(failure), start(ok)
    groups = make_groups(20)
    check_right(groups, client(bad.url, good.url, groups_per_request=1, max_connections=1).score(groups))
    assert 1 <= len(bad.asked) <= n_asked
    assert len(good.asked) == 20


def test_requests_spread_over_the_pool(start):
    four_under_way = threading.Barrier(4, timeout=PATIENCE_S)

    def meet(handler, body):
        four_under_way.wait()
        ok(handler, body)

    servers = [start(meet), start(meet)]
    groups = make_groups(12)
    check_right(groups, client(*(s.url for s in servers), groups_per_request=1, max_connections=4).score(groups))
    assert all(server.asked for server in servers)
    assert sum(len(server.asked) for server in servers) == 12
