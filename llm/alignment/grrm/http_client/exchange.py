"""One HTTP exchange, bounded in time and size, with a bearer token; every way to fail is an ExchangeError."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, TypeVar

import certifi
import urllib3
from pydantic import BaseModel, ValidationError
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, TimeoutError

from grrm.errors import UserError, first_error
from grrm.small_files import read_small_file

Message = TypeVar("Message", bound=BaseModel)
DEADLINE_HEADER = "X-Deadline-Seconds"  # how long after its arrival a request's answer is still of use


class AnswerError(Exception):
    """The server's answer does not fit the request; the message says where."""


def parse_answer(model: type[Message], content: bytes, what: str = "answer") -> Message:
    """`content` as a message of this model. Raises AnswerError, which quotes no text."""
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        _, field, message = first_error(error)
        raise AnswerError(f"the {what} is malformed at {field or 'its top level'}: {message}") from error


def single_line(text: str) -> str:
    """The first 300 characters of what a server says, on one line."""
    return " ".join(text.split())[:300]


def clean_text(text: str) -> str:
    """`text` with lone surrogates, which no JSON parser of ours accepts, replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


READ_BYTES = 65536
MAX_SERVERS = 1000  # whose connections stay open


class Failure(Enum):
    """Kinds of failures of an exchange, which decide whether and where the request is sent again."""

    AWAY = auto()  # nobody took it: a busy server (429, 503), none behind the gateway (502), or no connection
    LATE = auto()  # no answer in time (408, 504)
    CUT = auto()  # the connection broke
    MALFORMED = auto()  # the answer does not fit the request
    BROKEN = auto()  # the server itself failed (500 and the like), which its equals need not share
    REFUSED = auto()  # anything else: asking again cannot help
    UNSENT = auto()  # the deadline came first, which says nothing of the server


_OF_STATUS = {408: Failure.LATE, 504: Failure.LATE, **dict.fromkeys((429, 502, 503), Failure.AWAY)}


class ExchangeError(Exception):
    """A server did not answer as it should.

    `status`, `retry_after_s` and `content` are those of the answer, if it answered at all. `timed_out` says that it
    let the client wait in vain.
    """

    def __init__(
        self,
        server: str,
        cause: str,
        failure: Failure,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        content: bytes = b"",
        timed_out: bool = False,
    ) -> None:
        super().__init__(cause)
        self.server, self.cause, self.failure = server, cause, failure
        self.status, self.retry_after_s, self.content, self.timed_out = status, retry_after_s, content, timed_out


@dataclass
class HttpExchange:
    """Sends requests over kept-alive connections, up to `max_connections` at once; thread-safe.

    Proxies named in the environment are not used: they break loopback. REQUESTS_CA_BUNDLE names the file of an
    authority of one's own that signed the servers' certificates. `token` is sent as bearer token.
    """

    token: str | None = None
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 600.0
    max_answer_bytes: int = 16 * 2**20
    max_connections: int = 32

    def __post_init__(self) -> None:
        bearer = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        self._headers = {"Accept": "application/json", "Accept-Encoding": "identity"} | bearer
        authorities = os.environ.get("REQUESTS_CA_BUNDLE") or certifi.where()
        certificates = {"ca_cert_dir" if os.path.isdir(authorities) else "ca_certs": authorities}
        self._connections = urllib3.PoolManager(MAX_SERVERS, None, maxsize=self.max_connections, **certificates)

    def close(self) -> None:
        """Close the idle connections."""
        self._connections.clear()

    def send(self, method: str, server: str, path: str, body: bytes | None, deadline: float) -> bytes:
        """The body of a 200 answer, received before `deadline` (on time.monotonic()'s clock).

        Raises ExchangeError on anything else: no connection, no answer in time, another status, too large a body.
        """
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            raise ExchangeError(server, "no time was left to ask", Failure.UNSENT)
        read_s = min(self.read_timeout_s, remaining_s)
        try:
            with self._connections.urlopen(
                method,
                server + path,
                body=body,
                headers=self._headers if body is None else self._headers | _of_body(read_s),
                timeout=urllib3.Timeout(connect=min(self.connect_timeout_s, remaining_s), read=read_s),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            ) as response:
                content = self._content(server, response, deadline)
        except (HTTPError, OSError) as error:
            raise _no_answer(server, error) from error
        if response.status != 200:
            raise _status_error(server, response, content)
        return content

    def _content(self, server: str, response: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
        """Read what has arrived, piece by piece, so that a server that drips cannot outlast the deadline."""
        pieces: list[bytes] = []
        n_bytes = 0
        while piece := response.read1(READ_BYTES):
            n_bytes += len(piece)
            if n_bytes > self.max_answer_bytes:
                raise ExchangeError(server, f"the answer exceeds {self.max_answer_bytes} bytes", Failure.REFUSED)
            if time.monotonic() > deadline:
                raise ExchangeError(server, "the answer was still arriving at the deadline", Failure.LATE)
            pieces.append(piece)
        return b"".join(pieces)


def _of_body(read_s: float) -> dict[str, str]:
    """Headers of a body whose answer is waited for `read_s` seconds: the server is told a little less."""
    return {"Content-Type": "application/json", DEADLINE_HEADER: f"{read_s - min(1.0, 0.1 * read_s):.3f}"}


def parse_retry_after(value: str | None) -> float | None:
    """Seconds that a Retry-After header asks to wait (a number or an HTTP date); None when absent or malformed."""
    try:
        return None if value is None else urllib3.Retry().parse_retry_after(value)
    except (HTTPError, ValueError, OverflowError):  # no date, or one with a year of twenty digits
        return None


def _status_error(server: str, response: urllib3.BaseHTTPResponse, content: bytes) -> ExchangeError:
    status = response.status
    return ExchangeError(
        server,
        f"it answered HTTP {status}{_redirection(response) or _explanation(content)}",
        _OF_STATUS.get(status, Failure.BROKEN if status >= 500 else Failure.REFUSED),
        status=status,
        retry_after_s=parse_retry_after(response.headers.get("Retry-After")),
        content=content,
    )


def _redirection(response: urllib3.BaseHTTPResponse) -> str:
    """Return where a redirect leads, without a query, which may hold a secret; empty for any other answer."""
    address = response.get_redirect_location()
    if not address or "@" in address:
        return ""
    return f", a redirect to {single_line(address.partition('?')[0])}"


class _ErrorMessage(BaseModel):
    message: str


class _Explanation(BaseModel):
    """The error bodies of our servers, and of those that speak OpenAI's protocols."""

    error_msg: str = ""
    field: str | None = None
    reference_id: str | None = None
    error: _ErrorMessage | str | None = None
    message: str = ""
    detail: Any = None  # of servers on FastAPI: a text, or a list that says what is wrong with the request


def _explanation(content: bytes) -> str:
    """Return the explanation in an error body, on one line; empty for a body of another form."""
    try:
        body = _Explanation.model_validate_json(content)
    except ValidationError:
        return ""
    error = body.error.message if isinstance(body.error, _ErrorMessage) else body.error
    detail = body.detail if isinstance(body.detail, str) else ""
    message = single_line(error or body.message or body.error_msg or detail).rstrip(".")
    prefix = f" at {body.field}" if body.field else ""
    reference = f" (log reference {body.reference_id})" if body.reference_id else ""
    return f"{prefix}: {message}{reference}" if message or reference else prefix


def _no_answer(server: str, error: Exception) -> ExchangeError:
    """The failure in a few words; the libraries' own messages carry object addresses and nesting."""
    if isinstance(error, TimeoutError) and not isinstance(error, NewConnectionError):
        is_late = not isinstance(error, ConnectTimeoutError)
        cause = "no answer came in time" if is_late else "the connection was not accepted in time"
        return ExchangeError(server, cause, Failure.LATE if is_late else Failure.AWAY, timed_out=True)
    inner: BaseException = error
    while (deeper := inner.__cause__ or inner.__context__) is not None:
        inner = deeper
    if isinstance(inner, FileNotFoundError):  # no part of a connection but its authorities is a file
        cause = f"REQUESTS_CA_BUNDLE names {os.environ.get('REQUESTS_CA_BUNDLE')!r}, which is not there"
        return ExchangeError(server, cause, Failure.REFUSED)
    is_refused = isinstance(inner, ConnectionRefusedError)
    cause = "the connection was refused" if is_refused else f"the connection failed ({type(inner).__name__}: {inner})"
    return ExchangeError(server, cause, Failure.AWAY if isinstance(error, NewConnectionError) else Failure.CUT)


def token_from_file(path: str, title: str) -> str:
    """The token in the file at `path`, which errors call `title`. Raises UserError when it holds none."""
    try:
        text = read_small_file(path, title).decode("ascii")
    except OSError as error:
        raise UserError(f"cannot read the {title} ({error.strerror}): name a file that you may read") from error
    except UnicodeDecodeError:
        text = ""
    return _checked(text, title)


def token_from_env(name: str, title: str) -> str:
    """The token in the environment variable `name`, which errors call `title`. Raises UserError when it holds none."""
    return _checked(os.environ.get(name, ""), title)


def _checked(text: str, title: str) -> str:
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UserError(f"the {title} holds no token: put one line of printable ASCII without spaces there")
    return token
