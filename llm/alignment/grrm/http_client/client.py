"""Requests to a pool of equal servers: which failures are waited out, which are counted, which go to another server.

What is asked and how answers are read is up to the caller, who describes each request as a `Call`.
"""

from __future__ import annotations

import logging
import math
import multiprocessing
import random
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import count
from multiprocessing.pool import AsyncResult, ThreadPool
from typing import Any, Generic, TypeVar, cast

from grrm.errors import UserError
from grrm.http_client.exchange import AnswerError, ExchangeError, Failure, HttpExchange
from grrm.http_client.pool import ServerPool, checked_url

logger = logging.getLogger(__name__)
T = TypeVar("T")
PROBE_INTERVAL_S = 0.2
AWAY_PAUSE_S = 5.0  # to ask an address where nobody takes requests costs next to nothing
GRACE_S = 1.0  # a request's own thread notices the deadline first and knows the cause


@dataclass
class Call(Generic[T]):
    """One request: what people call it, how it is sent, and how its answer is read.

    `read` gets the answer's body and the address of the server that sent it; it raises AnswerError for an answer that
    does not fit. `servers` are the addresses that may be asked, None all. A call that is not `patient` counts attempts
    at busy and absent servers too.
    """

    question: str
    path: str
    body: bytes | None
    read: Callable[[bytes, str], T]
    method: str = "POST"
    servers: Sequence[str] | None = None
    patient: bool = True

    def keep(self, content: bytes) -> bool:
        """Take what was done from an answer at the request's deadline (504), so that only the rest is asked again.

        Returns False where nothing was: then the server has let the client wait in vain.
        """
        return False

    def redacted(self, cause: str, status: int) -> str:
        """Return the part of `cause`, a refusal with this status, that may be logged."""
        return cause


class NoAnswer(UserError):
    """No server answered `call`; carries what the sentence names, and how the last exchange failed."""

    def __init__(self, noun: str, call: Call[Any], error: ExchangeError, attempt: int, why: str = "") -> None:
        cause = error.cause + why
        super().__init__(
            f"{noun} {error.server} did not answer {call.question} at attempt {attempt}: {cause}; check the server and "
            "the request, then start again"
        )
        self.call: Any = call
        self.server, self.attempt, self.cause = error.server, attempt, cause
        self.failure, self.status = error.failure, error.status


class HttpClient:
    """Asks one server or a pool of equal ones, over at most `max_connections` connections at once; thread-safe.

    A server that is busy (429, 503) or away (502, connection refused or not accepted) costs time and no attempt.
    Time-outs, broken connections, 408, 504 and malformed answers are attempts; `attempts` of them, over all servers,
    end a request. A server that answers 500 and the like is not asked again, but the others are; any other answer is
    final.

    The pause is that of Retry-After, else it grows, with jitter, to at most AWAY_PAUSE_S if no server accepted the
    request; there is none while some server has not just failed. A pause beyond the deadline is cut to AWAY_PAUSE_S,
    for servers say an hour and are back in a second.

    A server that let a request time out gets no other before it answers a probe, while the pool has others.

    Args:
        urls: addresses without the path.
        noun: name of a server in messages.
        probe: path that a ready server answers with 200; at "/" any answer will do.
        deadline_s: longest time of a call, retries included.
        exchange: fields of `HttpExchange`.

    Raises:
        UserError: the settings cannot work.
    """

    def __init__(
        self,
        urls: Sequence[str],
        noun: str,
        probe: str,
        *,
        deadline_s: float = 1800.0,
        attempts: int = 6,
        backoff_initial_s: float = 0.5,
        backoff_max_s: float = 30.0,
        **exchange: Any,
    ) -> None:
        if not urls:
            raise UserError(f"no {noun} is named: set its URL, for example http://127.0.0.1:8731")
        if isinstance(urls, str):
            raise UserError(f"each {noun} is named in a list: write ['http://host:port'], not a text alone")
        self.exchange = HttpExchange(**exchange)
        self.noun, self.deadline_s, self.attempts = noun, deadline_s, attempts
        for name in ("deadline_s", "connect_timeout_s", "read_timeout_s", "attempts", "max_connections"):
            check_positive(noun, name, getattr(self if hasattr(self, name) else self.exchange, name))
        self._probe, self._backoff_s = probe, (backoff_initial_s, backoff_max_s)
        self.pool = ServerPool([checked_url(url, noun) for url in urls], self._is_well)

    def close(self) -> None:
        """Close idle connections."""
        self.exchange.close()

    def unready(self, url: str, deadline: float) -> ExchangeError | None:
        """Return the failure of the server to answer the probe; None where it answers."""
        error = self._probed(url, deadline)
        return None if error is None or (self._probe == "/" and error.status is not None) else error

    def require_any(self, within_s: float) -> None:
        """Wait until one of the servers takes a connection, for one that nobody has started never does.

        Raises UserError with what became of each when that takes longer than `within_s`.
        """
        deadline = time.monotonic() + within_s
        while True:
            causes = []
            for url in self.pool.urls:
                error = self._probed(url, time.monotonic() + self.exchange.connect_timeout_s)
                if error is None or error.status is not None or error.failure is not Failure.AWAY:
                    return
                causes.append(f"{url}: {error.cause}")
            if time.monotonic() + PROBE_INTERVAL_S >= deadline:
                raise UserError(f"no {self.noun} answers ({'; '.join(causes)}): start it or correct the URL")
            time.sleep(PROBE_INTERVAL_S)

    def takes_requests(self) -> bool:
        """Return False where every server says that it is busy or away, or says nothing."""
        errors = (self._probed(url, time.monotonic() + self.exchange.connect_timeout_s) for url in self.pool.urls)
        return any(error is None or error.failure not in (Failure.AWAY, Failure.LATE) for error in errors)

    def _probed(self, url: str, deadline: float) -> ExchangeError | None:
        try:
            self.exchange.send("GET", url, self._probe, None, deadline)
        except ExchangeError as error:
            return error
        return None

    def _is_well(self, url: str) -> bool:
        return self.unready(url, time.monotonic() + self.exchange.connect_timeout_s) is None

    def ask_all(
        self, calls: Sequence[Call[T]], deadline: float, on_answer: Callable[[int, T], None] | None = None
    ) -> list[T]:
        """Answers aligned with `calls`, before `deadline` on time.monotonic()'s clock. Raises NoAnswer.

        `on_answer(i, answer)` is called as answer i comes, for one at a time, from the threads of the requests.
        """
        return cast(list[T], self.try_all(calls, deadline, lambda error: False, on_answer))

    def ask_each(self, urls: Sequence[str], call: Call[T], deadline: float) -> dict[str, T | NoAnswer]:
        """Return each server's own answer to one call, or its failure."""
        answers = self.try_all([replace(call, servers=[url]) for url in urls], deadline, lambda error: True)
        return dict(zip(urls, answers, strict=True))

    def try_all(
        self,
        calls: Sequence[Call[T]],
        deadline: float,
        is_marked: Callable[[NoAnswer], bool],
        on_answer: Callable[[int, T], None] | None = None,
    ) -> list[T | NoAnswer]:
        """As `ask_all`, but failures that `is_marked` picks take the place of their answers."""
        if not calls:
            return []
        stop, lock = threading.Event(), threading.Lock()

        def ask(number: int, call: Call[T]) -> T:
            answer = self._ask(call, deadline, stop)
            if on_answer is not None:
                with lock:
                    on_answer(number, answer)
            return answer

        # The threads are daemons: a stuck server cannot keep a failed process alive.
        with ThreadPool(min(self.exchange.max_connections, len(calls))) as threads:
            pairs: list[tuple[AsyncResult[Any], Call[Any]]]
            pairs = [(threads.apply_async(ask, numbered), numbered[1]) for numbered in enumerate(calls)]
            try:
                return [self._answer(*pair, deadline, is_marked) for pair in pairs]
            finally:
                stop.set()

    def _answer(
        self, result: AsyncResult[T], call: Call[T], deadline: float, is_marked: Callable[[NoAnswer], bool]
    ) -> T | NoAnswer:
        try:
            return result.get(max(deadline + GRACE_S - time.monotonic(), 0.0))
        except multiprocessing.TimeoutError:
            cause = f"no answer within the deadline of {self.deadline_s:g} s"
            error = ExchangeError(", ".join(call.servers or self.pool.urls), cause, Failure.LATE)
            failure = NoAnswer(self.noun, call, error, self.attempts)
        except NoAnswer as error:
            failure = error
        if is_marked(failure):
            return failure
        raise failure

    def _ask(self, call: Call[T], deadline: float, stop: threading.Event) -> T:
        """One request with its retries; runs in a thread of the pool."""
        among, n_failed, last = list(call.servers or self.pool.urls), 0, None
        too_late = f" (the deadline of {self.deadline_s:g} s leaves no time for another attempt)"
        for attempt in count(1):
            backoff_s = self._backoff(attempt)
            try:
                return self._send(call, among, backoff_s, deadline)
            except ExchangeError as error:
                if error.failure is Failure.UNSENT:  # the one before says why nobody answered
                    raise NoAnswer(self.noun, call, last or error, max(attempt - 1, 1), too_late) from error
                last = error
            if last.failure is Failure.BROKEN:
                among.remove(last.server)
            if last.failure is Failure.REFUSED or not among:
                raise NoAnswer(self.noun, call, last, attempt) from last
            n_failed += not (call.patient and last.failure is Failure.AWAY)
            if n_failed >= self.attempts:
                raise NoAnswer(self.noun, call, last, attempt, f" (the last of {self.attempts} attempts)") from last
            pause_s = self._pause(among, backoff_s, deadline)
            if stop.is_set() or time.monotonic() + pause_s >= deadline:
                raise NoAnswer(self.noun, call, last, attempt, too_late) from last
            self._log_retry(call, last, attempt, pause_s)
            sleep_unless(stop, pause_s)
        raise AssertionError("a retry loop ends with an answer or an exception")

    def _send(self, call: Call[T], among: Collection[str], backoff_s: float, deadline: float) -> T:
        server = self.pool.acquire(among)
        rest_s: float | None = backoff_s  # unless it answers, or says something else
        timed_out = False
        try:
            answer = call.read(self.exchange.send(call.method, server.url, call.path, call.body, deadline), server.url)
            rest_s = None
        except AnswerError as error:
            raise ExchangeError(server.url, str(error), Failure.MALFORMED) from error
        except ExchangeError as error:
            timed_out = error.timed_out
            if error.failure is Failure.AWAY:
                rest_s = min(backoff_s, AWAY_PAUSE_S)
            if error.status is not None:
                if error.retry_after_s is not None:  # of a server that says 0 for long nobody asks without a pause
                    rest_s = max(error.retry_after_s, self._backoff_s[0])
                error.cause = call.redacted(error.cause, error.status)
            if error.status == 504:
                timed_out = not call.keep(error.content)
            raise
        finally:
            self.pool.release(server, rest_s, timed_out=timed_out)
        return answer

    def _backoff(self, attempt: int) -> float:
        initial_s, longest_s = self._backoff_s
        return min(initial_s * 2.0 ** min(attempt - 1, 60) + random.uniform(0.0, initial_s), longest_s)

    def _pause(self, among: Collection[str], backoff_s: float, deadline: float) -> float:
        """Seconds until one of the servers is free; a short pause where none is before the deadline."""
        free_s = self.pool.seconds_until_free(among)
        return free_s if time.monotonic() + free_s < deadline else min(free_s, backoff_s, AWAY_PAUSE_S)

    def _log_retry(self, call: Call[T], error: ExchangeError, attempt: int, pause_s: float) -> None:
        is_news = attempt & (attempt - 1) == 0  # of an outage of an hour the log has ten lines, not hundreds
        level = logging.WARNING if is_news else logging.DEBUG
        sentence = "%s %s, %s, attempt %d: %s; asking again in %.1f s"
        logger.log(level, sentence, self.noun, error.server, call.question, attempt, error.cause, pause_s)


def sleep_unless(stop: threading.Event, seconds: float) -> None:
    """Sleep until `seconds` have passed or `stop` is set."""
    stop.wait(seconds)


def check_positive(noun: str, name: str, value: float) -> None:
    """Raises UserError for a setting that is not finite, not above zero, or a count below one."""
    if not (math.isfinite(value) and value > 0 and (name.endswith("_s") or value >= 1)):
        raise UserError(f"{noun} setting {name}={value!r} must be a finite number above zero")
