"""The machine's clock jumps while a server is at work: libfaketime changes it for the whole process, C code too."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path

import pytest
import requests
from support.reward_app import group, score_body
from support.reward_protocol import check_right, client, make_groups
from support.reward_servers import slow_server

pytestmark = pytest.mark.slow
INSTALL = "apt-get install -y --no-install-recommends libfaketime"
LIBRARIES = ("/usr/lib", "/usr/local/lib", "/usr/lib64")
YEAR_S = 365 * 86400
JUMPS = ("+3650d", "+0", "-3650d")
JUMP_EVERY_S, PATIENCE_S = 1.1, 120.0  # the library looks once a second
PATIENT = {"read_timeout_s": PATIENCE_S, "deadline_s": PATIENCE_S}
HEADER = "POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


class Clock:
    """The offset of a process's clock from the machine's, in a file that libfaketime reads every second."""

    def __init__(self, folder: Path) -> None:
        self._file, self._next = folder / "clock", folder / "clock.next"
        self.set("+0")

    def set(self, offset: str) -> None:
        self._next.write_text(offset)
        os.replace(self._next, self._file)

    @contextmanager
    def jumping(self):
        """It jumps to and fro by ten years all the while."""
        stop = threading.Event()

        def jump():
            while not stop.is_set():
                for offset in JUMPS:
                    self.set(offset)
                    stop.wait(JUMP_EVERY_S)

        with ThreadPoolExecutor(1) as threads:
            jumping = threads.submit(jump)
            try:
                yield
            finally:
                stop.set()
                jumping.result(120)

    def environment(self) -> dict[str, str]:
        """What makes a process live by this clock; its monotonic clock stays right, as the kernel's does."""
        found = [path for folder in LIBRARIES for path in Path(folder).rglob("faketime/libfaketimeMT.so.1")]
        assert found, f"this test needs libfaketime: {INSTALL}"
        return {
            "LD_PRELOAD": str(found[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }


@pytest.fixture
def clock(tmp_path):
    return Clock(tmp_path)


def server_times(url):
    return [verdict["time_s"] for verdict in requests.get(f"{url}/v1/live", timeout=PATIENCE_S).json()["recent"]]


def test_a_clock_that_jumps_by_ten_years_loses_no_verdict_and_ends_no_wait(clock):
    groups, times = make_groups(100), []
    with slow_server(0.05, variables=clock.environment(), judge_wait_s=PATIENCE_S) as (process, url):
        asking = client(url, **PATIENT, groups_per_request=5, max_connections=8)
        with clock.jumping():
            gives_up = time.monotonic() + PATIENCE_S
            while (not times or max(times) - min(times) < YEAR_S) and time.monotonic() < gives_up:
                check_right(groups, asking.score(groups))
                times += server_times(url)
            check_right(groups, asking.score(groups))
        assert requests.get(f"{url}/readyz", timeout=PATIENCE_S).status_code == 200
        counted = requests.get(f"{url}/metrics", timeout=PATIENCE_S).text
        assert process.poll() is None
    assert max(times) - min(times) > YEAR_S  # by the server's own clock: the jumps did reach it
    assert 'code="503"' not in counted
    assert 'code="504"' not in counted
    assert "grrm_connections_closed_total{" not in counted


def test_a_request_that_is_half_sent_when_the_clock_jumps_is_answered(clock):
    body = json.dumps(score_body(group("g", "3", "7"))).encode()
    whole = HEADER.format(len(body)).encode() + body
    with slow_server(0.0, variables=clock.environment()) as (_, url):
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        for offset in ("+3650d", "-3650d"):
            clock.set("+0")
            with socket.create_connection(address, timeout=PATIENCE_S) as connection:
                connection.sendall(whole[:-20])
                time.sleep(0.2)
                clock.set(offset)
                time.sleep(2.5)  # past the server's next look at the clock, and then at what is late
                connection.sendall(whole[-20:])
                answer = HTTPResponse(connection)
                answer.begin()
                assert answer.status == 200
                assert b'"score":7.0' in answer.read()


def test_work_that_was_accepted_is_answered_when_the_clock_jumps_while_the_server_stops(clock):
    groups = make_groups(6)
    with (
        slow_server(1.5, variables=clock.environment(), drain_timeout_s=PATIENCE_S) as (process, url),
        ThreadPoolExecutor(1) as threads,
    ):
        verdicts = threads.submit(client(url, **PATIENT, groups_per_request=6).score, groups)
        while not requests.get(f"{url}/v1/live", timeout=PATIENCE_S).json()["running"]:
            time.sleep(0.02)
        with clock.jumping():
            process.send_signal(signal.SIGTERM)
            check_right(groups, verdicts.result(PATIENCE_S))
            assert process.wait(PATIENCE_S) == 0
