"""Loads a reward server over several connections for a while; a process of its own, beside the server's.

    python benchmarks/server_load.py URL BODY --scores 256 [--connections 8] [--seconds 1] [--repeat-id]

Every connection is a thread that sends BODY, waits for the answer and sends the next. Where BODY holds `ID_MARK`, each
request gets an id of its own there, or all the same one. Answers are kept and looked at when the clock has stopped: one
that is not a 200 with as many scores as `--scores` says is an error. Prints a line of JSON.
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


def load(url: str, body: bytes, n_scores: int, connections: int, seconds: float, repeat_id: bool) -> dict[str, Any]:
    """Requests per second, latencies and how much of a core this process took, a request under way at the end included.

    Raises WrongAnswer unless every answer has `n_scores` scores, and OSError where one takes longer than a minute.
    """
    parts = urlsplit(url)
    open_ones = [Connection(str(parts.hostname), int(parts.port or 80)) for _ in range(connections)]
    make = request_maker(url, body, repeat_id)
    answers = [open_ones[0].exchange(make())]  # the server is awake, and a repeated id known to it
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

    threads = [threading.Thread(target=work, args=(connection,), daemon=True) for connection in open_ones]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall_s, cpu_s = time.perf_counter() - begin, time.process_time() - cpu_begin
    for connection in open_ones:
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
    """How many scores an answer of either protocol carries. Raises WrongAnswer where it is not a success."""
    status, body = answer
    if status != 200:
        raise WrongAnswer(f"HTTP {status}: {body[:300]!r}")
    found = json.loads(body)
    if "verdicts" in found:
        scores = [candidate["score"] for verdict in found["verdicts"] for candidate in verdict["candidates"]]
    elif found["error_code"] == 0:
        scores = found["score"]
    else:
        raise WrongAnswer(f"error {found['error_code']}: {found['error_msg']}")
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
    options = parser.parse_args()
    body, n_scores = options.body.read_bytes(), options.scores
    print(json.dumps(load(options.url, body, n_scores, options.connections, options.seconds, options.repeat_id)))


if __name__ == "__main__":
    main()
