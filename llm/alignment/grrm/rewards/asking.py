"""One request to a pool of servers: which failures are waited out, which are counted, which go to another server."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception
from tenacity.nap import sleep_using_event
from tenacity.wait import wait_exponential_jitter

from grrm.rewards.exchange import ExchangeError, OutOfTime
from grrm.rewards.protocol import AnswerError
from grrm.rewards.server_pool import ServerPool

logger = logging.getLogger(__name__)
T = TypeVar("T")
AWAY_PAUSE_S = 5.0  # to ask an address where nobody takes requests costs next to nothing


class NoAnswer(Exception):
    """No server of the pool answered; the message is the last cause, and why it was the last."""

    def __init__(self, server: str, attempt: int, cause: str) -> None:
        super().__init__(cause)
        self.server = server
        self.attempt = attempt
        self.cause = cause


@dataclass(slots=True)
class _Course:
    """How one request went so far."""

    n_failed: int = 0
    failed_at: set[str] = field(default_factory=set)  # servers that answered 500 and the like: asked no more
    last_error: ExchangeError | None = None  # of a request that was sent


@dataclass(frozen=True, slots=True)
class PoolAsker:
    """Asks until there is an answer, `attempts` failed or the deadline comes.

    A server that is busy (429, 503), away (502, connection refused or not accepted) or not yet there costs time and no
    attempt. One that answers 500 and the like is not asked again, but the others are. Time-outs, broken connections,
    408, 504 and malformed answers are attempts. The pause is as long as Retry-After says, else it grows, with jitter,
    to at most AWAY_PAUSE_S where nobody took the request; there is none while some server has not just failed. One that
    would outlast the deadline is at most AWAY_PAUSE_S, for servers say an hour and are back in a second.
    """

    pool: ServerPool
    attempts: int
    deadline_s: float
    backoff: wait_exponential_jitter

    def ask(self, send: Callable[[str], T], what: str, deadline: float, stop: threading.Event) -> T:
        """What `send(url)` returns; `what` names the request in the log.

        Raises NoAnswer. `deadline` is on time.monotonic()'s clock; `stop` ends the pauses.
        """
        course = _Course()
        retrying = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, ExchangeError) and self._may_help(error, course)),
            stop=lambda state: (
                course.n_failed >= self.attempts or stop.is_set() or time.monotonic() + state.upcoming_sleep >= deadline
            ),
            wait=lambda state: pause_within(self.pool, course.failed_at, self.backoff(state), deadline),
            sleep=sleep_using_event(stop),
            before_sleep=partial(_log_retry, what),
            reraise=True,
        )
        try:
            for attempt in retrying:
                with attempt:
                    return self._ask_once(send, attempt.retry_state, course)
        except ExchangeError as error:
            number = int(retrying.statistics["attempt_number"])
            if isinstance(error, OutOfTime) and course.last_error is not None:  # it says why nobody answered
                number, error = number - 1, course.last_error
            raise NoAnswer(error.server, number, self._cause(error, course)) from error
        raise AssertionError("a retry loop ends with an answer or an exception")

    def _ask_once(self, send: Callable[[str], T], state: RetryCallState, course: _Course) -> T:
        server = self.pool.acquire(course.failed_at)
        pause_s = self.backoff(state)
        rest_s: float | None = pause_s  # unless it answers, or says something else
        is_late = False
        try:
            answer = send(server.url)
            rest_s = None
        except AnswerError as error:
            course.n_failed += 1
            course.last_error = ExchangeError(server.url, str(error), is_retryable=True)
            raise course.last_error from error
        except ExchangeError as error:
            course.n_failed += not error.is_away
            course.last_error = course.last_error if isinstance(error, OutOfTime) else error
            is_late = error.is_late
            rest_s = min(pause_s, AWAY_PAUSE_S) if error.is_away else pause_s
            rest_s = error.retry_after_s if error.retry_after_s is not None else rest_s
            if error.is_broken:
                course.failed_at.add(server.url)
            raise
        finally:
            self.pool.release(server, rest_s, is_late=is_late)
        return answer

    def _may_help(self, error: ExchangeError, course: _Course) -> bool:
        if error.is_retryable:
            return True
        return error.server in course.failed_at and len(course.failed_at) < len(self.pool.urls)

    def _cause(self, error: ExchangeError, course: _Course) -> str:
        if not self._may_help(error, course):
            return str(error)
        if course.n_failed >= self.attempts:
            return f"{error} (the last of {self.attempts} attempts)"
        return f"{error} (the deadline of {self.deadline_s:g} s leaves no time for another attempt)"


def pause_within(pool: ServerPool, exclude: Collection[str], backoff_s: float, deadline: float) -> float:
    """Seconds until some server outside `exclude` is free; a short pause where none is before the deadline."""
    free_s = pool.seconds_until_free(exclude)
    return free_s if time.monotonic() + free_s < deadline else min(free_s, backoff_s, AWAY_PAUSE_S)


def _log_retry(what: str, state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    number = state.attempt_number
    is_news = number & (number - 1) == 0  # of an outage of an hour the log has ten lines, not hundreds
    logger.log(
        logging.WARNING if is_news else logging.DEBUG,
        "reward server %s, %s, attempt %d: %s; asking again in %.1f s",
        error.server if isinstance(error, ExchangeError) else "?",
        what,
        number,
        error,
        state.upcoming_sleep,
    )
