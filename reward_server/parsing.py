"""HTTP requests as they arrive: refused as soon as their header is there, and limited in every part of them."""

from __future__ import annotations

from collections.abc import Callable

from waitress.adjustments import Adjustments
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.receiver import ChunkedReceiver
from waitress.utilities import Error, RequestEntityTooLarge

from .problems import RequestProblem

MAX_HEADER_BYTES = 2**15
MAX_LENGTH_DIGITS = 19
MAX_CHUNK_LINE_BYTES, MAX_TRAILER_BYTES = 2**10, 2**13  # beyond what ends in one read
CHUNKED_READ_BYTES = 2**12  # waitress copies what is left of a read for each chunk in it
SMALL_CHUNKS_BYTES, MIN_SHARE = 2**14, 0.9  # from so many bytes on, this share of them must be the body's
REASONS = {400: "Bad Request", 401: "Unauthorized", 413: "Request Entity Too Large", 421: "Misdirected Request"}
FOREIGN_HOST = "this server is not called that: use its own address, or name it in allowed_hosts"
TWO_LENGTHS = "Content-Length and Transfer-Encoding exclude one another: send one of them"
_WITH_BODY = ("POST", "PUT", "PATCH")

Admit = Callable[[str, str, str | None], RequestProblem | None]


class Refusal(Error):  # type: ignore[misc]
    """A request refused before the application sees it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, REASONS[code]


class RequestParser(HTTPRequestParser):  # type: ignore[misc]
    """Asks `admit` and the limits about a request before its body is taken."""

    def __init__(
        self, admit: Admit, is_host_allowed: Callable[[str | None], bool], max_body_bytes: int, adjustments: Adjustments
    ) -> None:
        super().__init__(adjustments)
        self._admit, self._is_host_allowed, self._max_body_bytes = admit, is_host_allowed, max_body_bytes
        self._n_chunked_bytes = 0

    def received(self, data: bytes) -> int:
        """Take a part of the request; returns how many bytes belong to it."""
        had_header = self.headers_finished
        is_chunked = isinstance(self.body_rcv, ChunkedReceiver)
        n_consumed: int = super().received(data[:CHUNKED_READ_BYTES] if is_chunked else data)
        if self.empty or not (self.error is None or isinstance(self.error, RequestEntityTooLarge)):
            return n_consumed  # waitress looks at the length first: whoever has no token is told that instead
        if self.headers_finished and not had_header:
            self._refuse(self._objection())
        elif is_chunked:
            self._n_chunked_bytes += n_consumed
            self._refuse(_bad_chunks(self.body_rcv, self._n_chunked_bytes))
        return n_consumed

    def parse_header(self, header_plus: bytes) -> None:
        """Raises ParsingError for a header that contradicts itself, too."""
        try:
            super().parse_header(header_plus)
        except ValueError as error:
            is_long = len(self.headers.get("CONTENT_LENGTH", "")) > MAX_LENGTH_DIGITS
            raise ParsingError(f"{'Content-Length' if is_long else 'the address'} is invalid") from error
        if self.chunked and "CONTENT_LENGTH" in self.headers:
            raise ParsingError(TWO_LENGTHS)
        if len(str(self.content_length)) > MAX_LENGTH_DIGITS:
            raise ParsingError("Content-Length is invalid")

    def _objection(self) -> tuple[int, str] | None:
        if not self._is_host_allowed(self.headers.get("HOST")):
            return 421, FOREIGN_HOST
        refusal = self._admit(self.command, self.path, self.headers.get("AUTHORIZATION"))
        if refusal is not None:
            return refusal.status, refusal.message
        if self.command not in _WITH_BODY and (self.chunked or self.content_length):
            return 400, f"{self.command} takes no body: send it without one"
        if self.content_length > self._max_body_bytes:
            return 413, f"the body exceeds {self._max_body_bytes} bytes: send less per request"
        return None

    def _refuse(self, objection: tuple[int, str] | None) -> None:
        if objection is not None:
            self.error = Refusal(*objection)
            self.completed, self.expect_continue = True, False


class Unread(HTTPRequestParser):  # type: ignore[misc]
    """The data that a client sends beyond the requests that it may: never a request."""

    def received(self, data: bytes) -> int:
        """Take all of it."""
        return len(data)


def _bad_chunks(body: ChunkedReceiver, n_bytes: int) -> tuple[int, str] | None:
    """Waitress searches an unfinished line anew each time something arrives, and takes its time for each chunk."""
    if len(body.control_line) > MAX_CHUNK_LINE_BYTES or (not body.completed and len(body.trailer) > MAX_TRAILER_BYTES):
        return 400, "a chunk's first line or the trailer does not end: send them in full"
    if n_bytes > SMALL_CHUNKS_BYTES and len(body) < MIN_SHARE * n_bytes:
        return 400, "the chunks of the body are too small: send some hundred bytes in each"
    return None
