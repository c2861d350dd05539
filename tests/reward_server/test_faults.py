"""A full disk, clients that leave: no verdict is lost, made up or given to another candidate."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from support.reward_app import group, score_body
from support.reward_protocol import check_right, client, make_groups
from support.reward_servers import slow_server


def test_full_disk_costs_neither_verdicts_nor_the_server(tmp_path):
    groups = make_groups(300)
    with slow_server(0, log_file=str(tmp_path / "log")) as (process, url):
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (4096, 4096))
        asking = client(url, groups_per_request=4)
        for _ in range(3):  # hundreds of lines of log, for which there is no room
            check_right(groups, asking.score(groups))
        large = score_body(*(group(f"g{number}", str(number % 10), "x" * 60_000) for number in range(40)))
        with pytest.raises(requests.ConnectionError):  # too large a body for memory, and there is no disk
            requests.post(f"{url}/v1/score", json=large, timeout=120)
        wordy = requests.post(f"{url}/v1/score", json=score_body(group("g", "7", "wordy")), timeout=120)
        assert wordy.json()["verdicts"][0]["candidates"][0]["score"] == 7.0
        assert len(wordy.content) > 4_000_000
        check_right(groups, asking.score(groups))
        assert requests.get(f"{url}/readyz", timeout=120).status_code == 200
        assert process.poll() is None


def test_clients_that_leave_at_any_moment_hurt_nobody():
    groups = make_groups(60)
    body = json.dumps(score_body(group("g", "3", "wordy"))).encode()
    request = (
        b"POST /v1/score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    whole = request % len(body) + body
    with slow_server(0.02) as (process, url):
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        stop = threading.Event()

        def leave():
            sent = 0
            while not stop.is_set():
                with socket.create_connection(address) as connection:
                    connection.sendall(whole[: sent % len(whole) + 1])
                    sent += 37
                    stop.wait(0.005)

        with ThreadPoolExecutor(4) as threads:
            leaving = [threads.submit(leave) for _ in range(3)]
            asking = client(url, groups_per_request=3)
            try:
                for _ in range(4):
                    check_right(groups, asking.score(groups))
            finally:
                stop.set()
            for left in leaving:
                left.result(120)
        assert process.poll() is None
        live = requests.get(f"{url}/v1/live", timeout=120).json()
        assert live["waiting"] == 0


@pytest.mark.slow
def test_memory_of_a_server_that_is_loaded_and_annoyed_is_measured(tmp_path):
    command = [sys.executable, "benchmarks/soak.py", "--minutes", "0.2", "--clients", "2"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "found.json")], capture_output=True, text=True, timeout=600
    )
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["wrong_verdicts"], found["faults"], found["exit_status"]) == (0, [], 0), done.stderr
    assert found["groups"] > 0
    assert found["hostile_requests"] > 0
