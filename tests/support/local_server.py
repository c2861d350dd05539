"""An HTTP server on a free port of this machine, in threads of this process, whose answers a test writes."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

# Settings of a client of such a server: patient on a busy machine, with few and early retries.
FAST = {
    "connect_timeout_s": 30.0,
    "read_timeout_s": 60.0,
    "deadline_s": 120.0,
    "attempts": 2,
    "backoff_initial_s": 0.01,
}


class Asked(NamedTuple):
    """A request."""

    path: str
    body: bytes
    headers: dict[str, str]


class Handler(BaseHTTPRequestHandler):
    """Answers over connections that stay open."""

    protocol_version = "HTTP/1.1"

    def reply(self, status: int, content: Any, **headers: str) -> None:
        """Send an answer, bytes or what becomes JSON; underscores stand for the hyphens of header names."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        of_body = {"Content-Length": str(len(body)), "Content-Type": "application/json"}
        for name, value in {**of_body, **{name.replace("_", "-"): value for name, value in headers.items()}}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


class _Listener(ThreadingHTTPServer):
    request_queue_size = 128  # connections that wait for a busy machine to accept them; beyond it they are reset
    daemon_threads = True

    def handle_error(self, *args: Any) -> None:
        """Clients may hang up: that is no error here."""


@contextmanager
def refusing_url() -> Iterator[str]:
    """An address of this machine that refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


class LocalServer:
    """Serves at `url` from the start until `close`; `asked` has all requests.

    Request k is answered by `script[k]`, the last one for ever, which is called with the handler and the body.
    """

    def __init__(self, *script: Callable[[Any, bytes], None]) -> None:
        self.asked: list[Asked] = []
        self.lock = lock = threading.Lock()
        asked = self.asked

        class Answers(Handler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with lock:
                    answer = script[min(len(asked), len(script) - 1)]
                    asked.append(Asked(self.path, body, dict(self.headers)))
                answer(self, body)

            do_HEAD = do_POST = do_GET

        self.http = _Listener(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def paths(self) -> list[str]:
        """Those that were asked for."""
        return [one.path for one in self.asked]

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
