"""SIGTERM: what was accepted is answered whole, nothing new is accepted, and the exit status tells which it was."""

from __future__ import annotations

import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from support.reward_app import group, rows_body, score_body
from support.reward_servers import slow_server
from support.stopped_clock import PATIENCE_S, eventually


def ask(url, number=0, text="7"):
    body = score_body(group("g", text), request_id=f"r{number}")
    return requests.post(f"{url}/v1/score", json=body, timeout=PATIENCE_S)


def n_accepted(url):
    live = requests.get(f"{url}/v1/live", timeout=PATIENCE_S).json()
    return live["running"] + live["waiting"]


def stop_beside(url, process, threads, n_requests=1):
    """Futures of requests that are all accepted when SIGTERM comes."""
    first = threads.submit(ask, url)
    eventually(lambda: n_accepted(url) == 1)
    waiting = [threads.submit(ask, url, number) for number in range(1, n_requests)]
    eventually(lambda: n_accepted(url) == n_requests)
    process.send_signal(signal.SIGTERM)
    eventually(lambda: requests.get(f"{url}/readyz", timeout=PATIENCE_S).status_code == 503)
    return [first, *waiting]


def accepted_are_answered(hold, n_requests, seconds=0.0):
    hold.touch()
    with slow_server(hold) as (process, url), ThreadPoolExecutor(n_requests) as threads:
        accepted = stop_beside(url, process, threads, n_requests)
        assert requests.get(f"{url}/healthz", timeout=PATIENCE_S).status_code == 200
        for refused in (ask(url, "late"), requests.post(url, json=rows_body(), timeout=PATIENCE_S)):
            assert refused.status_code == 503
            assert refused.headers["Retry-After"] == "5"
            assert "stopping" in refused.json()["error_msg"]
        time.sleep(seconds)
        hold.unlink()
        for answer in accepted:
            assert answer.result().json()["verdicts"][0]["candidates"][0]["score"] == 7.0
        assert process.wait(PATIENCE_S) == 0


def test_accepted_requests_are_answered_and_new_ones_refused(tmp_path):
    accepted_are_answered(tmp_path / "hold", 3)


@pytest.mark.slow
def test_requests_that_take_longer_than_waitress_would_wait_are_answered(tmp_path):
    accepted_are_answered(tmp_path / "hold", 4, seconds=8.0)


def test_long_answer_arrives_whole_although_it_is_read_slowly():
    with slow_server(0.5) as (process, url), ThreadPoolExecutor(1) as threads:
        answer = threads.submit(
            requests.post,
            f"{url}/v1/score",
            json=score_body(group("g", "wordy")),
            stream=True,
            timeout=PATIENCE_S,
        )
        eventually(lambda: "grrm_judge_calls_total 1.0" in requests.get(f"{url}/metrics", timeout=PATIENCE_S).text)
        process.send_signal(signal.SIGTERM)
        pieces = []
        for piece in answer.result().iter_content(100_000):
            pieces.append(piece)
            time.sleep(0.02)
        assert process.wait(PATIENCE_S) == 0
    assert len(b"".join(pieces)) == int(answer.result().headers["Content-Length"]) > 4_000_000


def test_drain_timeout_ends_what_takes_longer_with_exit_status_1():
    with slow_server(600.0, drain_timeout_s=0.5) as (process, url), ThreadPoolExecutor(1) as threads:
        (lost,) = stop_beside(url, process, threads)
        assert process.wait(PATIENCE_S) == 1
        assert isinstance(lost.exception(PATIENCE_S), requests.ConnectionError)


def test_second_sigterm_ends_at_once_with_exit_status_1():
    with slow_server(600.0) as (process, url), ThreadPoolExecutor(1) as threads:
        (lost,) = stop_beside(url, process, threads)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 1
        assert isinstance(lost.exception(PATIENCE_S), requests.ConnectionError)


def test_half_a_request_does_not_hold_up_the_end():
    with slow_server(0.0) as (process, url):
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        with socket.create_connection(address) as half, socket.create_connection(address):
            half.sendall(b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            assert requests.get(f"{url}/healthz", timeout=PATIENCE_S).status_code == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
