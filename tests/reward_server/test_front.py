"""What slow, greedy and unauthorised clients can hold of a server, over real sockets."""

from __future__ import annotations

import gc
import itertools
import json
import platform
import socket
import threading
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import requests
from support.reward_app import RecordingJudge, group, reward_app, score_body
from support.reward_servers import reward_server
from support.stopped_clock import PATIENCE_S, cpu_seconds_of, eventually, stop_clock
from waitress import wasyncore
from waitress.channel import HTTPChannel

from grrm.judges.registry import open_judge
from grrm_reward_server.access import bind, read_token
from grrm_reward_server.front import OTHER_FILES, SPARE_THREADS, Channel, Front, within_file_limit
from grrm_reward_server.settings import Settings

GOOD = score_body(group("g", "Hello"))
HEADER = "POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@contextmanager
def serving(judge=None, **values):
    """(front, URL) of a server with these settings in a thread; it judges by chrF unless told otherwise."""
    settings = Settings(port=0, **values)
    token = read_token(None, settings.token_env)
    listener = bind(settings.host, 0, token)
    app = reward_app(settings, judge or open_judge("chrf"), token)
    front = Front(app, settings, listener)
    ended = threading.Event()

    def serve():
        while not ended.is_set():
            front.turn(0.05)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield front, f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ended.set()
        thread.join()
        front.task_dispatcher.shutdown(timeout=2)
        wasyncore.close_all(front._map)


def connect(url, sent=b""):
    one = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=PATIENCE_S)
    one.sendall(sent)
    return one


def pass_time(clock, front, seconds, step=1):
    """A second, or `step`, and another, until the clock is `seconds` on; the server looks each time at what is late."""
    for _ in range(0, seconds, step):
        clock.sleep(step)
        eventually(lambda: front.next_maintenance > clock.now)


def post(url, number):
    return requests.post(f"{url}/v1/score", json=GOOD | {"request_id": str(number)}, timeout=PATIENCE_S)


def is_closed(one):
    one.settimeout(0.01)
    try:
        return one.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def seconds_until_closed(clock, front, *connections, trickle):
    """By the clock, until all are closed; the first one sends `trickle` every second."""
    start = clock.now
    while not all(map(is_closed, connections)):
        assert clock.now < start + 100
        with suppress(ConnectionError):
            connections[0].sendall(trickle)
        pass_time(clock, front, 1)
    return clock.now - start


def closed_because_of(url, reason):
    text = requests.get(f"{url}/metrics", timeout=PATIENCE_S).text
    _, found, rest = text.partition(f'grrm_connections_closed_total{{reason="{reason}"}} ')
    return float(rest.split()[0]) if found else 0.0


def test_headers_and_bodies_have_deadlines_that_trickling_does_not_move(monkeypatch):
    clock = stop_clock(monkeypatch, "grrm_reward_server.front")
    with serving(header_timeout_s=10, body_timeout_s=30) as (front, url):
        with connect(url, b"POST / HTTP/1.1\r\nX: ") as slow, connect(url) as silent:
            eventually(lambda: len(front.active_channels) == 2)
            assert 10 <= seconds_until_closed(clock, front, slow, silent, trickle=b"x") <= 13
        with connect(url, f"{HEADER}Content-Length: 100000\r\n\r\n".encode()) as slow:
            eventually(lambda: any(one.request is not None for one in front.active_channels.values()))
            assert 30 <= seconds_until_closed(clock, front, slow, trickle=b" ") <= 33
        assert closed_because_of(url, "deadline") == 3


def scoring(n_groups, text):
    body = json.dumps(score_body(*[group(str(number), text) for number in range(n_groups)])).encode()
    return f"{HEADER}Content-Length: {len(body)}\r\n\r\n".encode() + body


def test_client_that_takes_an_answer_slowly_gets_it_and_one_that_takes_nothing_is_closed(monkeypatch):
    clock = stop_clock(monkeypatch, "grrm_reward_server.front")
    with serving() as (front, url), socket.socket() as slow:
        front.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        front.adj.outbuf_high_watermark = 2000  # beyond it the thread waits before it takes the second request
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", int(url.rpartition(":")[2])))
        slow.sendall(scoring(2000, "Hello") + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        eventually(front.served)
        (channel,) = front.served()
        eventually(lambda: channel.total_outbufs_len > 2000)
        for _ in range(3):
            pass_time(clock, front, 100, step=100)
            n_left = channel.total_outbufs_len
            while channel.total_outbufs_len == n_left:
                assert slow.recv(1000)
        assert channel.total_outbufs_len > 2000
        while channel.connected:  # what it has taken may reach the server late
            assert clock.now < 10_000
            pass_time(clock, front, 121, step=121)
        eventually(lambda: front.task_dispatcher.active_count == 0)
        assert closed_because_of(url, "deadline") == 1


class WordyJudge(RecordingJudge):
    """Has four million letters to say about a group."""

    def verdict(self, group):
        return replace(super().verdict(group), analysis="x" * 4_000_000)


def test_answers_that_nobody_reads_free_their_threads(monkeypatch):
    monkeypatch.setattr("grrm_reward_server.front.IDLE_S", 1.0)
    with serving(WordyJudge(), max_in_flight=1) as (_, url), ExitStack() as stack:
        for _ in range(1 + SPARE_THREADS):  # each holds a thread with two requests
            assert stack.enter_context(connect(url, scoring(8, "Hello") * 2)).recv(1)  # of 32 MB
        assert requests.get(f"{url}/healthz", timeout=PATIENCE_S).status_code == 200


def test_more_files_than_the_process_may_open_mean_fewer_connections(monkeypatch):
    limits = [(64, 600)]
    monkeypatch.setattr("resource.getrlimit", lambda which: limits[-1])
    monkeypatch.setattr("resource.setrlimit", lambda which, values: limits.append(values))
    assert within_file_limit(1000) == (600 - OTHER_FILES) // 2
    assert limits[-1] == (600, 600)
    limits.append((64, 5000))
    assert within_file_limit(1000) == 1000
    assert limits[-1] == (2000 + OTHER_FILES, 5000)


def test_idle_connection_between_requests_is_kept(monkeypatch):
    clock = stop_clock(monkeypatch, "grrm_reward_server.front")
    with serving(header_timeout_s=2, body_timeout_s=2) as (front, url), requests.Session() as session:
        for _ in range(2):
            assert session.post(f"{url}/v1/score", json=GOOD, timeout=PATIENCE_S).status_code == 200
            pass_time(clock, front, 10)
        assert closed_because_of(url, "deadline") == 0


@pytest.mark.parametrize("limit", ["max_connections_per_address", "max_connections"])
def test_connection_too_many_closes_the_oldest_that_is_half_open(limit):
    with serving(**{limit: 8}) as (_, url), requests.Session() as session, ExitStack() as stack:
        assert session.post(f"{url}/v1/score", json=GOOD, timeout=PATIENCE_S).status_code == 200
        half_open = [stack.enter_context(connect(url, b"POST / HTTP/1.1\r\n")) for _ in range(20)]
        for number in range(5):
            answer = session.post(f"{url}/v1/score", json=GOOD | {"request_id": str(number)}, timeout=PATIENCE_S)
            assert answer.status_code == 200
        eventually(lambda: all(map(is_closed, half_open[:13])))
        assert not any(map(is_closed, half_open[13:]))
        reason = "address_limit" if limit.endswith("address") else "connection_limit"
        assert closed_because_of(url, reason) >= 13


def test_connection_that_has_its_answer_is_not_closed_for_half_open_ones_while_its_thread_ends(monkeypatch):
    is_over, serve = threading.Event(), HTTPChannel.service

    def serve_and_wait(channel):
        serve(channel)
        is_over.wait(PATIENCE_S)

    monkeypatch.setattr(HTTPChannel, "service", serve_and_wait)
    with serving(max_connections_per_address=8) as (front, url), requests.Session() as session, ExitStack() as stack:
        stack.callback(is_over.set)
        assert session.post(f"{url}/v1/score", json=GOOD, timeout=PATIENCE_S).status_code == 200
        (answered,) = front.active_channels.values()
        eventually(lambda: not answered.requests)
        half_open = [stack.enter_context(connect(url, b"POST / HTTP/1.1\r\n")) for _ in range(9)]
        eventually(lambda: any(map(is_closed, half_open)))
        assert answered.connected


def test_threads_that_wait_for_work_hold_neither_connections_nor_requests():
    with serving() as (_, url):
        for number in range(20):  # each in another thread: the one that has waited longest is woken up
            post(url, number).raise_for_status()
        eventually(lambda: len(connections_in_memory()) <= 1)  # the last one is being closed


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="heaps are glibc's")
def test_threads_of_a_server_share_one_heap():
    with reward_server() as (process, url):
        for number in range(12):  # each in another thread
            post(url, number).raise_for_status()
        assert heaps_of_threads(process.pid) == 0


def heaps_of_threads(pid):
    """How many heaps there are beside the first: each has 64 MiB of addresses of its own, most of them not in use."""
    lines = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    areas = [(*(int(end, 16) for end in line[0].split("-")), line[1], line[4]) for line in lines]
    return sum(
        begin % 2**26 == 0 and end == rest and last == begin + 2**26 and (use, rest_use, inode) == ("rw-p", "---p", "0")
        for (begin, end, use, inode), (rest, last, rest_use, _) in itertools.pairwise(areas)
    )


def connections_in_memory():
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, Channel)]


@pytest.mark.slow
def test_good_clients_are_served_beside_eleven_hundred_half_open_ones():
    with reward_server() as (process, url), ExitStack() as stack:
        assert post(url, "first").status_code == 200  # the metric is loaded
        for number in range(1100):
            sent = (b"", b"POST / HT", f"{HEADER}Content-Length: 1000\r\n\r\n{{".encode())[number % 3]
            stack.enter_context(connect(url, sent))
        before = cpu_seconds_of(process.pid)
        for number in range(100):
            assert post(url, number).status_code == 200
        assert (cpu_seconds_of(process.pid) - before) / 100 < 0.05
