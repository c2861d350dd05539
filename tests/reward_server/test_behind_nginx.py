"""The shipped nginx configuration before two real servers: what it forwards, refuses and survives.

Runs where nginx is installed.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from contextlib import ExitStack, contextmanager

import pytest
import requests
import yaml
from support.reward_app import group, score_body
from support.reward_servers import reward_server
from support.rl_processes import ROOT
from support.stopped_clock import PATIENCE_S, eventually

pytestmark = pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
TOKEN = {"Authorization": "Bearer s3cret"}


@contextmanager
def proxied(folder):
    """(URL of nginx, the two server processes)."""
    (folder / "token.txt").write_text("s3cret\n")
    settings = yaml.safe_load((ROOT / "docker/reward_server.yaml").read_text()) | {"port": 0}
    (folder / "settings.yaml").write_text(json.dumps(settings))
    with ExitStack() as stack:
        options = ("--config", str(folder / "settings.yaml"), "--token-file", str(folder / "token.txt"))
        servers = [stack.enter_context(reward_server(*options)) for _ in range(2)]
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        text = (ROOT / "docker/nginx.conf").read_text()
        for number, (_, url) in enumerate(servers, 1):
            text = text.replace(f"judge-{number}:8731", url.removeprefix("http://"))
        text = text.replace("listen 8730;", f"listen 127.0.0.1:{port};").replace("/tmp/nginx", f"{folder}/nginx")
        (folder / "nginx.conf").write_text(text)
        command = ["nginx", "-c", str(folder / "nginx.conf"), "-e", "stderr", "-g", "daemon off;"]
        nginx = stack.enter_context(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        stack.callback(nginx.terminate)
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: is_up(url))
        yield url, [process for process, _ in servers]


def is_up(url):
    try:
        return requests.get(f"{url}/healthz", timeout=PATIENCE_S).status_code == 200
    except requests.ConnectionError:
        return False


def scored(url, number, **headers):
    body = score_body(group(str(number), "Hello"), request_id=str(number))
    return requests.post(f"{url}/v1/score", json=body, headers=headers, timeout=PATIENCE_S)


def statuses(url, sent):
    """Of all answers on a connection until it ends."""
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=PATIENCE_S) as connection:
        connection.sendall(sent.encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    return re.findall(r"HTTP/1\.\d (\d+)", answer)


def test_what_is_forwarded_and_what_is_refused(tmp_path):
    post, get = ("POST /v1/score HTTP/1.1\r\nHost: localhost\r\n", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
    with_token = f"{post}Authorization: Bearer s3cret\r\n"
    with proxied(tmp_path) as (url, _):
        assert scored(url, 1, **TOKEN).json()["verdicts"][0]["candidates"][0]["score"] == pytest.approx(10.0)
        assert scored(url, 2, Authorization="Bearer wrong").status_code == 401
        assert requests.get(f"{url}/", timeout=PATIENCE_S).status_code == 200
        assert requests.get(f"{url}/metrics", timeout=PATIENCE_S).status_code == 404
        for sent, status in (
            (f"{post}Content-Length: 60000000\r\nConnection: close\r\n\r\n", "401"),
            (f"{with_token}Content-Length: 68000000\r\n\r\n", "413"),
            (f"{get}Content-Length: 60000000\r\nConnection: close\r\n\r\n", "400"),
            (f"{get}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n", "400"),
            (f"{with_token}Content-Length: {'1' * 4300}\r\n\r\n", "400"),
            (f"{with_token}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", "400"),
            (f"{get}X: {'y' * 90000}\r\n\r\n", "400"),
        ):
            assert statuses(url, sent) == [status], sent[:120]


def test_a_killed_server_costs_no_request(tmp_path):
    with proxied(tmp_path) as (url, processes):
        for number in range(30):
            if number == 10:
                processes[0].kill()
            answer = scored(url, number, **TOKEN)
            assert answer.json()["verdicts"][0]["group_id"] == str(number)


def test_connections_that_are_never_finished_leave_room_for_others(tmp_path):
    with proxied(tmp_path) as (url, _), ExitStack() as stack:
        for _ in range(1000):  # four times what an address may hold
            address = ("127.0.0.1", int(url.rpartition(":")[2]))
            connection = stack.enter_context(socket.create_connection(address, timeout=PATIENCE_S))
            connection.sendall(b"POST /v1/score HTTP/1.1\r\nHost: localhost\r\n")
        assert scored(url, 1, **TOKEN).status_code == 200
