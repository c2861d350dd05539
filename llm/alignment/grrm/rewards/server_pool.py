"""Which reward server to ask next: the free one with the fewest requests under way, failed ones rest for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from grrm.errors import UserError


@dataclass(slots=True)
class Server:
    """One address of the pool; `rest_until` is on time.monotonic()'s clock."""

    url: str
    in_flight: int = 0
    rest_until: float = 0.0


class ServerPool:
    """Servers that answer the same questions; thread-safe. Raises UserError on an empty or malformed list of URLs."""

    def __init__(self, urls: Sequence[str]) -> None:
        if not urls:
            raise UserError("no reward server is named: set its URL, for example http://127.0.0.1:8731")
        self._servers = [Server(url) for url in dict.fromkeys(_checked_url(url) for url in urls)]
        self._lock = threading.Lock()

    @property
    def urls(self) -> list[str]:
        """The addresses, without a trailing slash."""
        return [server.url for server in self._servers]

    def acquire(self) -> Server:
        """The best server to ask now: one that does not rest, else the one whose rest ends first."""
        with self._lock:
            now = time.monotonic()
            server = min(self._servers, key=lambda s: (max(s.rest_until - now, 0.0), s.in_flight))
            server.in_flight += 1
            return server

    def release(self, server: Server, rest_s: float | None) -> None:
        """Ends a request; None says that the server answered, a number that it failed and is to rest that long."""
        with self._lock:
            server.in_flight -= 1
            if rest_s is None:
                server.rest_until = 0.0
            else:
                server.rest_until = max(server.rest_until, time.monotonic() + rest_s)

    def seconds_until_free(self) -> float:
        """How long until some server does not rest; 0 when one is free now."""
        with self._lock:
            return max(min(server.rest_until for server in self._servers) - time.monotonic(), 0.0)


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        well_formed = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, an unclosed bracket
        well_formed = False
    if not well_formed:
        raise UserError(f"reward server URL {url!r} is not of the form http://host:port: correct it")
    return url.rstrip("/")
