"""An HTTP server on a free port of this machine, in threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


class Handler(BaseHTTPRequestHandler):
    """Answers over connections that stay open; subclasses define `do_GET` and `do_POST`."""

    protocol_version = "HTTP/1.1"

    def body(self) -> bytes:
        """Read the request's body."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def reply(self, status: int, content: bytes, **headers: str) -> None:
        """Send an answer; underscores stand for the hyphens of header names."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


class _Listener(ThreadingHTTPServer):
    request_queue_size = 128  # connections that wait for a busy machine to accept them; beyond it they are reset


class LocalServer:
    """Serves at `url` from the start until `close`. Clients may hang up: that is no error here."""

    def __init__(self, handler: type[Handler]) -> None:
        self.http = _Listener(("127.0.0.1", 0), handler)
        self.http.daemon_threads = True
        self.http.handle_error = lambda *args: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def closed_after_test(kind: Callable[..., LocalServer]) -> Any:
    """A fixture that starts servers of this kind, which are closed after the test."""

    def start() -> Iterator[Callable[..., LocalServer]]:
        servers: list[LocalServer] = []

        def begin(*arguments: Any, **settings: Any) -> LocalServer:
            servers.append(kind(*arguments, **settings))
            return servers[-1]

        yield begin
        for server in servers:
            server.close()

    return pytest.fixture(start)
