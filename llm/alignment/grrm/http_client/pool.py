"""Choice of a server of a pool: the free one with the fewest requests under way; failed ones rest for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from grrm.errors import UserError

SUSPECT_S = 60.0  # a server that let a request time out is asked again only where the others rest for longer
FIRST_PROBE_S = 10.0  # then it is tried out after this long, and after each further time-out twice as late
LONGEST_PROBE_S = 3600.0
LONGEST_REST_S = 60.0  # of one of several, whatever it says: it may be the only one that is back


@dataclass(slots=True, eq=False)
class Server:
    """One address of the pool; `rest_until` and `probe_at` are on time.monotonic()'s clock.

    A server is suspect from a time-out on until it answers a request or a probe. `n_late` counts such times since it
    last answered a request: a server may answer probes and nothing else.
    """

    url: str
    in_flight: int = 0
    rest_until: float = 0.0
    is_suspect: bool = False
    n_late: int = 0
    probe_at: float = 0.0
    is_probed: bool = False


class ServerPool:
    """Servers that answer the same questions; thread-safe.

    `answers` asks a server something that takes no time and says whether it answered. It is called, in a thread of its
    own, for suspect servers while others serve; without it they stay suspect until they are needed.
    """

    def __init__(self, urls: Sequence[str], answers: Callable[[str], bool] | None = None) -> None:
        self._servers = [Server(url) for url in dict.fromkeys(urls)]
        self._answers = answers
        self._lock = threading.Lock()

    @property
    def urls(self) -> list[str]:
        """The addresses, in the order they were named."""
        return [server.url for server in self._servers]

    def acquire(self, among: Collection[str]) -> Server:
        """The best of these servers to ask now: one that does not rest, else the one whose rest ends first."""
        with self._lock:
            now = time.monotonic()
            choice = self._choice(among)
            server = min(choice, key=lambda s: (self._delay(s, choice, now), s.in_flight))
            server.in_flight += 1
            if not server.is_suspect:
                self._probe_suspects(now)
            return server

    def release(self, server: Server, rest_s: float | None, *, timed_out: bool = False) -> None:
        """End a request; None says that the server answered, a number that it failed and is to rest that long.

        Where there are several it rests LONGEST_REST_S at most.

        `timed_out` says that it failed by letting the client wait in vain.
        """
        with self._lock:
            now = time.monotonic()
            server.in_flight -= 1
            if rest_s is None:
                server.rest_until, server.is_suspect, server.n_late = 0.0, False, 0
                return
            longest_s = LONGEST_REST_S if len(self._servers) > 1 else rest_s
            server.rest_until = max(server.rest_until, now + min(rest_s, longest_s))
            if timed_out and not server.is_suspect:
                server.is_suspect = True
                server.n_late += 1
                server.probe_at = now + min(FIRST_PROBE_S * 2.0 ** min(server.n_late - 1, 20), LONGEST_PROBE_S)

    def seconds_until_free(self, among: Collection[str]) -> float:
        """Return the time until one of these servers does not rest; 0 if one is free now."""
        with self._lock:
            now, choice = time.monotonic(), self._choice(among)
            return min(self._delay(server, choice, now) for server in choice)

    def _choice(self, among: Collection[str]) -> list[Server]:
        return [server for server in self._servers if server.url in among]

    def _delay(self, server: Server, choice: Sequence[Server], now: float) -> float:
        avoided = server.is_suspect and not all(other.is_suspect for other in choice)
        return max(server.rest_until - now, 0.0) + SUSPECT_S * avoided

    def _probe_suspects(self, now: float) -> None:
        for server in self._servers:
            if self._answers and server.is_suspect and not server.is_probed and server.probe_at <= now:
                server.is_probed = True
                threading.Thread(target=self._probe, args=(server, self._answers), daemon=True).start()

    def _probe(self, server: Server, answers: Callable[[str], bool]) -> None:
        is_well = answers(server.url)
        with self._lock:
            server.is_probed = False
            server.is_suspect = server.is_suspect and not is_well
            server.probe_at = time.monotonic() + FIRST_PROBE_S


def checked_url(url: str, what: str = "reward server", form: str = "http://host:port") -> str:
    """`url` without a trailing slash. Raises UserError for one that is malformed or holds a secret, not quoting that.

    An address stands in the process list, in logs and in error messages; a token belongs into a file.
    """
    try:
        parts = urlsplit(url)
        well_formed = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, an unclosed bracket
        well_formed = False
    if "@" in url or "?" in url or "#" in url:
        raise UserError(
            f"a {what} URL holds a user name, password or query, which logs and other users of this machine would see: "
            f"give {form} alone, and a token in a file or an environment variable"
        )
    if not well_formed:
        raise UserError(f"{what} URL {url!r} is not of the form {form}: correct it")
    return url.rstrip("/")
