"""Loads a reward server over several connections for a while; a process of its own, beside the server's.

    python benchmarks/server_load.py URL BODY --scores 256 [--connections 8] [--seconds 1] [--repeat-id] [--probe PATH]

Every connection is a thread that sends BODY, waits for the answer and sends the next. Where BODY holds `ID_MARK`, each
request gets an id of its own there, or all the same one.

Answers are kept and looked at when the clock has stopped: one that is not a 200 with as many scores as `--scores` says
is an error. Prints a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import socket
import threading
import time
import uuid
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import quantiles
from typing import Any
from urllib.parse import urlsplit

ID_MARK = b"request-id-of-this-request"
PROBE_EVERY_S = 0.01
_TIMEOUT_S = 60.0
_RECEIVE_BYTES = 2**18


class WrongAnswer(Exception):
    """The server did not answer what was asked."""


class Connection:
    """A kept-alive HTTP connection that takes prepared requests."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def exchange(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer. Raises WrongAnswer where it ends early or has no length, OSError when late."""
        self._socket.sendall(request)
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._receive()
        head, _, body = received.partition(b"\r\n\r\n")
        status, *headers = head.decode("latin-1").lower().split("\r\n")
        lengths = [int(line.partition(":")[2]) for line in headers if line.startswith("content-length:")]
        if len(lengths) != 1:
            raise WrongAnswer(f"the answer has no length: {status}")
        while len(body) < lengths[0]:
            body += self._receive()
        return int(status.split()[1]), body

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> bytes:
        received = self._socket.recv(_RECEIVE_BYTES)
        if not received:
            raise WrongAnswer("the server closed the connection")
        return received


def load(
    url: str, body: bytes, n_scores: int, connections: int, seconds: float, repeat_id: bool, probe: str | None = None
) -> dict[str, Any]:
    """Requests per second, latencies and how much of a core this process took, a request under way at the end included.

    With `probe`, a path, also how long GETs of it take meanwhile. Raises WrongAnswer unless every answer has `n_scores`
    scores, and OSError where one takes longer than a minute.
    """
    parts = urlsplit(url)
    open_connections = [Connection(str(parts.hostname), int(parts.port or 80)) for _ in range(connections)]
    make = request_maker(url, body, repeat_id)
    answers = [open_connections[0].exchange(make())]  # the server is awake, and a repeated id known to it
    latencies_s: list[float] = []
    problems: list[Exception] = []
    begin, cpu_begin = time.perf_counter(), time.process_time()

    def work(connection: Connection) -> None:
        try:
            now = begin
            while now - begin < seconds:  # once at least, however late the thread begins
                sent = time.perf_counter()
                answers.append(connection.exchange(make()))
                now = time.perf_counter()
                latencies_s.append(now - sent)
        except (WrongAnswer, OSError) as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(connection,), daemon=True) for connection in open_connections]
    probing = Probing(parts.netloc, probe) if probe else None
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall_s, cpu_s = time.perf_counter() - begin, time.process_time() - cpu_begin
    probes = probing.end() if probing else {}
    for connection in open_connections:
        connection.close()
    if problems:
        raise problems[0]
    for answer in answers:
        if count_scores(answer) != n_scores:
            raise WrongAnswer(f"an answer has {count_scores(answer)} scores, asked for {n_scores}")
    return {
        "requests": len(latencies_s),
        "requests_per_s": len(latencies_s) / wall_s,
        "p50_ms": 1e3 * percentile(latencies_s, 50),
        "p99_ms": 1e3 * percentile(latencies_s, 99),
        "client_cores": cpu_s / wall_s,
        **probes,
    }


class Probing:
    """Asks for a path every few milliseconds until `end`, as the probes of a cluster do, only more often."""

    def __init__(self, address: str, path: str) -> None:
        host, _, port = address.rpartition(":")
        self._connection = Connection(host, int(port))
        self._request = f"GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode()
        self._took_s: list[float] = []
        self._problems: list[Exception] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        try:
            while not self._ended.wait(PROBE_EVERY_S):
                begin = time.perf_counter()
                status, body = self._connection.exchange(self._request)
                self._took_s.append(time.perf_counter() - begin)
                if status != 200:
                    raise WrongAnswer(f"HTTP {status} for a probe: {body[:300]!r}")
        except (WrongAnswer, OSError) as error:
            self._problems.append(error)

    def end(self) -> dict[str, float]:
        """Number of probes and their latencies. Raises WrongAnswer where one was not answered with 200."""
        self._ended.set()
        self._thread.join()
        self._connection.close()
        if self._problems:
            raise self._problems[0]
        return {
            "probes": len(self._took_s),
            "probe_p50_ms": 1e3 * percentile(self._took_s, 50),
            "probe_p99_ms": 1e3 * percentile(self._took_s, 99),
        }


def request_maker(url: str, body: bytes, repeat_id: bool) -> Callable[[], bytes]:
    """A function whose every call gives the next request, complete with its head."""
    parts = urlsplit(url)
    before, mark, after = body.partition(ID_MARK)
    run, numbers = uuid.uuid4().hex, count()

    def make() -> bytes:
        # The ids have one length, so that the head is always the same.
        text = f"{run}-{0 if repeat_id else next(numbers):09}".encode()
        return b"".join((head, before, text if mark else b"", after))

    length = len(before) + len(after) + (len(f"{run}-{0:09}") if mark else 0)
    head = (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()
    return make


def count_scores(answer: tuple[int, bytes]) -> int:
    """Count the scores in an answer of either protocol. Raises WrongAnswer if it is not a success."""
    status, body = answer
    if status != 200:
        raise WrongAnswer(f"HTTP {status}: {body[:300]!r}")
    parsed = json.loads(body)
    if "verdicts" in parsed:
        scores = [candidate["score"] for verdict in parsed["verdicts"] for candidate in verdict["candidates"]]
    elif parsed["error_code"] == 0:
        scores = parsed["score"]
    else:
        raise WrongAnswer(f"error {parsed['error_code']}: {parsed['error_msg']}")
    return sum(isinstance(score, int | float) for score in scores)


def percentile(values: list[float], percent: int) -> float:
    """The value that `percent` of a hundred do not exceed, between the two nearest; the only one where it is one."""
    return quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else values[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("body", type=Path)
    parser.add_argument("--scores", type=int, required=True, help="how many each answer must have")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--repeat-id", action="store_true")
    parser.add_argument("--probe", metavar="PATH", help="ask for it meanwhile, every 10 ms")
    options = parser.parse_args()
    settings = (options.scores, options.connections, options.seconds, options.repeat_id, options.probe)
    print(json.dumps(load(options.url, options.body.read_bytes(), *settings)))


if __name__ == "__main__":
    main()
