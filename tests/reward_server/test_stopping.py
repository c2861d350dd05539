"""SIGTERM: what was accepted is answered whole, nothing new is accepted, and the exit status tells which it was."""

from __future__ import annotations

import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from support.reward_app import group, rows_body, score_body
from support.slow_server import slow_server


def ask(url, number=0, text="7"):
    body = score_body(group("g", text), request_id=f"r{number}")
    return requests.post(f"{url}/v1/score", json=body, timeout=60)


def wait_until(condition):
    ends = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


def judge_calls(url):
    return "grrm_judge_calls_total 1" in requests.get(f"{url}/metrics", timeout=5).text


def stop_beside(url, process, threads, n_requests=1):
    """Futures of requests that are all accepted when SIGTERM comes."""
    first = threads.submit(ask, url)
    wait_until(lambda: judge_calls(url))
    waiting = [threads.submit(ask, url, number) for number in range(1, n_requests)]
    time.sleep(0.3 * bool(waiting))
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: requests.get(f"{url}/readyz", timeout=5).status_code == 503)
    return [first, *waiting]


def accepted_are_answered(judge_s, n_requests):
    with slow_server(judge_s) as (process, url), ThreadPoolExecutor(n_requests) as threads:
        accepted = stop_beside(url, process, threads, n_requests)
        assert requests.get(f"{url}/healthz", timeout=5).status_code == 200
        for refused in (ask(url, "late"), requests.post(url, json=rows_body(), timeout=5)):
            assert refused.status_code == 503
            assert refused.headers["Retry-After"] == "5"
            assert "stopping" in refused.json()["error_msg"]
        for answer in accepted:
            assert answer.result().json()["verdicts"][0]["candidates"][0]["score"] == 7.0
        assert process.wait(10) == 0


def test_accepted_requests_are_answered_and_new_ones_refused():
    accepted_are_answered(1.5, 3)


@pytest.mark.slow
def test_requests_that_take_longer_than_waitress_would_wait_are_answered():
    accepted_are_answered(8.0, 4)


def test_long_answer_arrives_whole_although_it_is_read_slowly():
    with slow_server(0.5) as (process, url), ThreadPoolExecutor(1) as threads:
        answer = threads.submit(
            requests.post,
            f"{url}/v1/score",
            json=score_body(group("g", "wordy")),
            stream=True,
            timeout=30,
        )
        wait_until(lambda: judge_calls(url))
        process.send_signal(signal.SIGTERM)
        pieces = []
        for piece in answer.result().iter_content(100_000):
            pieces.append(piece)
            time.sleep(0.02)
        assert process.wait(10) == 0
    assert len(b"".join(pieces)) == int(answer.result().headers["Content-Length"]) > 4_000_000


def test_drain_timeout_ends_what_takes_longer_with_exit_status_1():
    with slow_server(30.0, drain_timeout_s=0.5) as (process, url), ThreadPoolExecutor(1) as threads:
        (lost,) = stop_beside(url, process, threads)
        assert process.wait(10) == 1
        assert isinstance(lost.exception(10), requests.ConnectionError)


def test_second_sigterm_ends_at_once_with_exit_status_1():
    with slow_server(30.0) as (process, url), ThreadPoolExecutor(1) as threads:
        (lost,) = stop_beside(url, process, threads)
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 1
        assert isinstance(lost.exception(10), requests.ConnectionError)


def test_half_a_request_does_not_hold_up_the_end():
    with slow_server(0.0) as (process, url):
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        with socket.create_connection(address) as half, socket.create_connection(address):
            half.sendall(b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            assert requests.get(f"{url}/healthz", timeout=5).status_code == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(5) == 0
