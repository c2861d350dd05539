"""What hostile connections cost a real server and are answered: for judges of each kind, and for `grrm serve`."""

from __future__ import annotations

import json
import os
import re
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import requests
from support.reward_servers import SCRIPT, cost_during, peak_bytes, serving
from support.stopped_clock import PATIENCE_S
from support.tiny_policy import write_tiny_checkpoint, write_tiny_reward_model

MIB = 2**20
TOKEN = {"Authorization": "Bearer s3cret"}
GET, UNKNOWN = (f"{line} HTTP/1.1\r\nHost: localhost\r\n" for line in ("GET /healthz", "POST /v1/score"))
POST = f"{UNKNOWN}Authorization: Bearer s3cret\r\nContent-Type: application/json\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n"
X, BYTES = "x" * 8 * MIB, "1\r\nx\r\n" * MIB
ATTACKS = {  # connections, and what each sends
    "probes": (74, f"{GET}\r\n" * 1500),
    "requests without a token": (74, f"{UNKNOWN}Content-Length: 2\r\n\r\n{{}}" * 1000),
    "62 KB of small requests": (25, "GET / HTTP/1.1\r\n\r\n" * 3500),
    "a body where none belongs": (20, f"{GET}Content-Length: {8 * MIB}\r\n\r\n{X}"),
    "a body without a token": (20, f"{UNKNOWN}{CHUNKED}\r\n800000\r\n{X}"),
    "endless length of a chunk": (20, f"{POST}{CHUNKED}\r\n{'0' * 8 * MIB}"),
    "chunks of a byte": (20, f"{POST}{CHUNKED}\r\n{BYTES}"),
    "endless trailer": (20, f"{POST}{CHUNKED}\r\n0\r\n{X}"),
}
KINDS = {
    "metric": lambda folder: [SCRIPT, "--judge", "chrf"],
    "reward model": lambda folder: [SCRIPT, "--judge", "ranker", "--model", write_tiny_reward_model(folder, "ranker")],
    "own model": lambda folder: [SCRIPT, "--judge", "gqm", "--model", write_tiny_checkpoint(folder)],
    "completions": lambda folder: ["-m", "grrm.cli", "serve", write_tiny_checkpoint(folder)],
}


@pytest.fixture(
    scope="module", params=["metric", *(pytest.param(kind, marks=pytest.mark.slow) for kind in list(KINDS)[1:])]
)
def served(request, tmp_path_factory):
    """(process, URL) of a server of each kind that asks for a token, once it has answered."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "token").write_text("s3cret")
    command = [*KINDS[request.param](folder / "model"), "--port", "0", "--token-file", folder / "token"]
    with serving(list(map(str, command))) as (process, url):
        requests.get(f"{url}/readyz", headers=TOKEN, timeout=PATIENCE_S).raise_for_status()
        yield process, url


def connect(url, sent=""):
    one = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=PATIENCE_S)
    with suppress(ConnectionError):  # refused, and closed before all of it was sent
        one.sendall(sent.encode())
    return one


def rest_of(one):
    """All that comes back up to the end of the connection."""
    pieces = []
    with suppress(ConnectionError):
        pieces.extend(iter(lambda: one.recv(65536), b""))
    return b"".join(pieces).decode()


def statuses(url, sent):
    """Of all answers on a connection until it ends."""
    with connect(url, sent) as one:
        return re.findall(r"HTTP/1\.\d (\d+)", rest_of(one))


def strike(url, n_connections, sent):
    """Send from many connections that read nothing, until the server has answered others for a while."""
    with ExitStack() as stack:
        for _ in range(n_connections):
            stack.enter_context(connect(url, sent))
        for _ in range(10):
            requests.get(f"{url}/healthz", timeout=PATIENCE_S).raise_for_status()


@pytest.mark.parametrize("name", ATTACKS)
def test_connections_that_read_no_answer_cost_little_and_hold_up_no_probe(served, name):
    process, url = served
    n_connections, sent = ATTACKS[name]
    _, growth, seconds, probe_s = cost_during(process, url, lambda: strike(url, n_connections, sent))
    assert growth < 100e6
    assert seconds < 3.0
    assert probe_s < 1.0


def test_connection_ends_where_a_client_sends_requests_without_waiting_for_answers(served):
    assert 1 <= len(statuses(served[1], f"{GET}\r\n" * 500)) < 50


@pytest.mark.parametrize(
    ("header", "status", "message"),
    [
        (f"{UNKNOWN}Content-Length: 60000000", 401, "asks for a token"),
        (f"{UNKNOWN}Content-Length: 60000000\r\nAuthorization: Bearer x", 401, "asks for a token"),
        (f"{UNKNOWN}Transfer-Encoding: chunked", 401, "asks for a token"),
        (f"{UNKNOWN}Content-Length: 9\r\nExpect: 100-continue", 401, "asks for a token"),
        (f"{UNKNOWN.replace('/v1/score', '/healthz')}Content-Length: 60000000", 401, "asks for a token"),
        (f"{GET}Content-Length: 60000000", 400, "takes no body"),
        (f"{GET}Transfer-Encoding: chunked", 400, "takes no body"),
        (f"{POST}Content-Length: 70000000", 413, "the body exceeds"),
        (f"{POST}Content-Length: x", 400, "Content-Length"),
        (f"{POST}Content-Length: {'1' * 4300}", 400, "Content-Length"),
        (f"{POST}Content-Length: 2\r\nTransfer-Encoding: chunked", 400, "exclude one another"),
        ("GET http://[::1/healthz HTTP/1.1\r\nHost: localhost", 400, "the address is invalid"),
        (f"{GET}X: {'y' * 40000}", 431, "exceeds max_header"),
    ],
)
def test_request_is_refused_by_its_header_and_its_body_is_not_taken(served, header, status, message):
    process, url = served
    before = peak_bytes(process)
    with connect(url, f"{header}\r\n\r\n{X}") as one:
        open_files = [os.readlink(file) for file in Path(f"/proc/{process.pid}/fd").iterdir()]
        head, _, body = rest_of(one).partition("\r\n\r\n")
    assert not [name for name in open_files if "(deleted)" in name]
    assert peak_bytes(process) - before < 10 * MIB
    assert head.split()[1] == str(status)
    assert ("www-authenticate: bearer" in head.lower()) == (status == 401)
    problem = json.loads(body)
    assert message in (problem["error_msg"] if "error_msg" in problem else problem["error"]["message"])
    counted = requests.get(f"{url}/metrics", headers=TOKEN, timeout=PATIENCE_S).text
    assert f'grrm_requests_total{{code="{status}",route="other"}}' in counted


@pytest.mark.parametrize("body", ["1" * 5000, f"0\r\nX: {'y' * 20000}", BYTES])
def test_lines_of_chunks_and_trailers_that_do_not_end_and_tiny_chunks_are_refused(served, body):
    assert statuses(served[1], f"{POST}{CHUNKED}\r\n{body}") == ["400"]


def test_body_in_chunks_of_a_hundred_bytes_is_read(served):
    chunks = (b" " * 100 for _ in range(10_000))
    headers = {**TOKEN, "Content-Type": "application/json"}
    answer = requests.post(f"{served[1]}/v1/score", data=chunks, headers=headers, timeout=PATIENCE_S)
    assert answer.status_code in (400, 404)  # what is read is not JSON, and `grrm serve` has no such route
    assert "chunks" not in answer.text
