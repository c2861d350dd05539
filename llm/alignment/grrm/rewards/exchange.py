"""One HTTP exchange with a reward server, bounded in time and size; every way it can fail is an ExchangeError."""

from __future__ import annotations

import os
import time
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

import requests
import urllib3
from pydantic import ConfigDict, ValidationError

from grrm.rewards.protocol import DEADLINE_HEADER, Problem

RETRYABLE_STATUSES = frozenset({408, 429, 502, 503, 504})
AWAY_STATUSES = frozenset({429, 502, 503})
READ_BYTES = 65536


class ExchangeError(Exception):
    """A server did not answer as it should; `is_retryable` says whether asking again can help.

    `http_status` and `retry_after_s` are set when it answered at all and when it asked for a pause. `is_away` says that
    nobody took the request: the server is busy, or there is none at the address now. `is_late` is a time-out.
    `is_broken` is a failure of the server itself (500 and the like), which its equals need not share. `content` is the
    body of the answer, if any.
    """

    def __init__(
        self,
        server: str,
        cause: str,
        *,
        is_retryable: bool,
        http_status: int | None = None,
        retry_after_s: float | None = None,
        is_away: bool = False,
        is_late: bool = False,
        content: bytes = b"",
    ) -> None:
        super().__init__(cause)
        self.is_away = is_away or http_status in AWAY_STATUSES
        self.is_late = is_late
        self.is_broken = http_status is not None and http_status >= 500 and not is_retryable
        self.content = content
        self.http_status = http_status
        self.server = server
        self.is_retryable = is_retryable
        self.retry_after_s = retry_after_s


class OutOfTime(ExchangeError):
    """The deadline came before the request was sent, which says nothing of the server."""

    def __init__(self, server: str) -> None:
        super().__init__(server, "no time was left to ask", is_retryable=True, is_away=True)


class HttpExchange:
    """Sends requests over kept-alive connections.

    Proxies from the environment are not used: they break loopback. REQUESTS_CA_BUNDLE names the file of an authority
    of one's own that signed the servers' certificates.
    """

    def __init__(self, *, token: str | None, connect_timeout_s: float, read_timeout_s: float, max_answer_bytes: int):
        self.connect_timeout_s = connect_timeout_s
        self.read_timeout_s = read_timeout_s
        self.max_answer_bytes = max_answer_bytes
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.verify = os.environ.get("REQUESTS_CA_BUNDLE") or True
        self._session.headers.update({"Accept": "application/json", "Accept-Encoding": "identity"})
        if token is not None:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def close(self) -> None:
        """Closes the idle connections."""
        self._session.close()

    def send(self, method: str, server: str, path: str, body: bytes | None, deadline: float) -> bytes:
        """The body of a 200 answer, received before `deadline` (on time.monotonic()'s clock).

        Raises ExchangeError on anything else: no connection, no answer in time, another status, too large a body.
        """
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            raise OutOfTime(server)
        read_s = min(self.read_timeout_s, remaining_s)
        try:
            with self._session.request(
                method,
                server + path,
                data=body,
                headers=None if body is None else _headers(read_s),
                timeout=(min(self.connect_timeout_s, remaining_s), read_s),
                allow_redirects=False,
                stream=True,
            ) as response:
                content = self._content(server, response, deadline)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            is_late = isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError)
            cause, is_away = _plain_cause(error), _found_nobody(error)
            raise ExchangeError(server, cause, is_retryable=True, is_away=is_away, is_late=is_late) from error
        if response.status_code != 200:
            raise _status_error(server, response, content)
        return content

    def _content(self, server: str, response: requests.Response, deadline: float) -> bytes:
        """Reads what has arrived, piece by piece, so that a server that drips cannot outlast the deadline."""
        pieces: list[bytes] = []
        n_bytes = 0
        while piece := response.raw.read1(READ_BYTES):
            n_bytes += len(piece)
            if n_bytes > self.max_answer_bytes:
                raise ExchangeError(server, f"the answer exceeds {self.max_answer_bytes} bytes", is_retryable=False)
            if time.monotonic() > deadline:
                raise ExchangeError(server, "the answer was still arriving at the deadline", is_retryable=True)
            pieces.append(piece)
        return b"".join(pieces)


def _headers(read_s: float) -> dict[str, str]:
    """Of a request whose answer is waited for `read_s` seconds: the server is told a little less."""
    return {"Content-Type": "application/json", DEADLINE_HEADER: f"{read_s - min(1.0, 0.1 * read_s):.3f}"}


def parse_retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Seconds that a Retry-After header asks to wait (a number or an HTTP date); None when absent or malformed."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):  # no date, or one with a year of twenty digits
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return max((moment - (now or datetime.now(timezone.utc))).total_seconds(), 0.0)


def _status_error(server: str, response: requests.Response, content: bytes) -> ExchangeError:
    return ExchangeError(
        server,
        f"it answered HTTP {response.status_code}{_explanation(content)}",
        is_retryable=response.status_code in RETRYABLE_STATUSES,
        http_status=response.status_code,
        retry_after_s=parse_retry_after(response.headers.get("Retry-After")),
        content=content,
    )


class _Explanation(Problem):
    """A Problem, or an error answer that has more to tell."""

    model_config = ConfigDict(extra="ignore")


def _explanation(content: bytes) -> str:
    """What the server says in a Problem body, on one line; empty for any other body."""
    try:
        problem = _Explanation.model_validate_json(content)
    except ValidationError:
        return ""
    message = " ".join(problem.error_msg.split())[:300]
    place = f" at {problem.field}" if problem.field else ""
    reference = f" (log reference {problem.reference_id})" if problem.reference_id else ""
    return f"{place}: {message}{reference}"


def _plain_cause(error: Exception) -> str:
    """The failure in a few words; the libraries' own messages carry object addresses and nesting."""
    if isinstance(error, requests.ConnectTimeout):
        return "the connection was not accepted in time"
    if isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError):
        return "no answer came in time"
    if "Connection refused" in str(error):
        return "the connection was refused"
    if isinstance(error, requests.ConnectionError | urllib3.exceptions.ProtocolError | OSError):
        return f"the connection failed ({_innermost(error)})"
    return f"the request failed ({_innermost(error)})"


def _found_nobody(error: Exception) -> bool:
    reason = getattr(error.args[0], "reason", None) if error.args else None  # of urllib3, around which requests wraps
    no_connection = urllib3.exceptions.NewConnectionError | urllib3.exceptions.ConnectTimeoutError
    return isinstance(error, requests.ConnectTimeout) or isinstance(reason, no_connection)


def _innermost(error: BaseException) -> str:
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return f"{type(error).__name__}: {error}"
