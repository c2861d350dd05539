"""Requests to generation servers (FastDeploy, vLLM, SGLang …): a pool that shares them, retries and deadlines.

What is asked and how answers are read is up to the caller; texts, rollouts and control requests go through here.
"""

from __future__ import annotations

import logging
import math
import multiprocessing
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.pool import AsyncResult, ThreadPool
from typing import Any, Generic, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception
from tenacity.nap import sleep_using_event
from tenacity.wait import wait_exponential_jitter

from grrm.engine.openai_wire import MODELS_PATH, CompletionsExchange, hide_prompt, read_model_name, unanswered_because
from grrm.errors import UserError
from grrm.rewards.asking import pause_within
from grrm.rewards.exchange import ExchangeError
from grrm.rewards.protocol import AnswerError
from grrm.rewards.server_pool import ServerPool, checked_url

logger = logging.getLogger(__name__)
T = TypeVar("T")
Answer = TypeVar("Answer", covariant=True)


class GenerationServerError(UserError):
    """No server gave a reply; carries what the sentence names.

    `unanswered` is "timeout" or "unreachable" where no server took or finished the request, "too_long" where one has
    no room for the prompt, "refused" where one takes it for wrong (400, 413, 422), None where one refused it otherwise.
    """

    def __init__(self, server: str, question: str, attempt: int, cause: str, unanswered: str | None = None) -> None:
        super().__init__(
            f"generation server {server} did not answer {question} at attempt {attempt}: {cause}; check the server and "
            "the request, then start again"
        )
        self.server = server
        self.attempt = attempt
        self.cause = cause
        self.unanswered = unanswered


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One request: what people call it, how it is sent, and how its answer is checked.

    `parse` gets the answer's body and the address of the server that sent it; it raises AnswerError for an answer that
    is malformed. `pool` has the servers that may be asked, None all.
    """

    question: str
    method: str
    path: str
    body: bytes | None
    parse: Callable[[bytes, str], Answer]
    pool: ServerPool | None = None


WHICH_MODEL: Call[str] = Call(
    "which model it has", "GET", MODELS_PATH, None, lambda content, server: read_model_name(content)
)


class ServerCalls:
    """Asks one server or a pool of equal ones, over at most `max_connections` connections at once.

    `attempts` counts tries per request over all servers. Failed connections, time-outs, malformed answers and HTTP
    408, 429, 502, 503 and 504 are retried, at once on a server that has not just failed, otherwise after an
    exponentially growing, jittered pause or the server's Retry-After, if that ends before the deadline. A server that
    answers 500 and the like is not asked again, but the others are; any other answer is final. `token` is sent as
    bearer token. No message quotes a prompt. Raises UserError on settings that cannot work.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        token: str | None = None,
        connect_timeout_s: float = 5.0,
        read_timeout_s: float = 600.0,
        deadline_s: float = 1800.0,
        attempts: int = 6,
        max_connections: int = 32,
        backoff_initial_s: float = 0.5,
        backoff_max_s: float = 30.0,
        max_answer_bytes: int = 16 * 2**20,
    ) -> None:
        if not urls:
            raise UserError("no generation server is named: set its URL, for example http://127.0.0.1:8000")
        counts = {"attempts": attempts, "max_connections": max_connections}
        times = {"connect_timeout_s": connect_timeout_s, "read_timeout_s": read_timeout_s, "deadline_s": deadline_s}
        for name, value in (counts | times).items():
            if not (math.isfinite(value) and value > 0 and (name in times or value >= 1)):
                raise UserError(f"generation server setting {name}={value!r} must be a finite number above zero")
        self.pool = ServerPool([_checked_url(url) for url in urls])
        self.deadline_s, self.attempts, self.max_connections = deadline_s, attempts, max_connections
        self._backoff = wait_exponential_jitter(initial=backoff_initial_s, max=backoff_max_s, jitter=backoff_initial_s)
        self._exchange = CompletionsExchange(
            token=token,
            connect_timeout_s=connect_timeout_s,
            read_timeout_s=read_timeout_s,
            max_answer_bytes=max_answer_bytes,
            max_connections=max_connections,
        )

    def close(self) -> None:
        """Closes idle connections."""
        self._exchange.close()

    def ask_all(
        self,
        calls: Sequence[Call[T]],
        deadline: float,
        *,
        is_marked: Callable[[GenerationServerError], bool] = lambda error: False,
        on_answer: Callable[[int, T], None] | None = None,
    ) -> list[T | GenerationServerError]:
        """Answers aligned with `calls`, before `deadline` on time.monotonic()'s clock.

        `is_marked` says which failures take the place of an answer; any other is raised. `on_answer(i, answer)` is
        called as answer i comes, for one at a time, from the threads of the requests.
        """
        stop, one_at_a_time = threading.Event(), threading.Lock()

        def ask(number: int, call: Call[T]) -> T:
            answer = self._ask(call, deadline=deadline, stop=stop)
            if on_answer is not None:
                with one_at_a_time:
                    on_answer(number, answer)
            return answer

        # The threads are daemons: a stuck server cannot keep a failed process alive.
        with ThreadPool(min(self.max_connections, len(calls))) as threads:
            arriving: list[AsyncResult[Any]] = [threads.apply_async(ask, one) for one in enumerate(calls)]
            try:
                return [self._answer(one, call, deadline, is_marked) for one, call in zip(arriving, calls, strict=True)]
            finally:
                stop.set()

    def ask_each(self, urls: Sequence[str], call: Call[T], deadline: float) -> dict[str, T | GenerationServerError]:
        """What each of these servers answers to one call, or how it failed; none may speak for another."""
        calls = [replace(call, pool=ServerPool([url])) for url in urls]
        answers = self.ask_all(calls, deadline, is_marked=lambda error: True) if calls else []
        return dict(zip(urls, answers, strict=True))

    def _answer(
        self,
        arriving: AsyncResult[T],
        call: Call[T],
        deadline: float,
        is_marked: Callable[[GenerationServerError], bool],
    ) -> T | GenerationServerError:
        """The answer to one call, or the failure that is to be marked."""
        grace_s = 1.0  # the request's own thread notices the deadline first and knows the cause
        try:
            return arriving.get(max(deadline - time.monotonic(), 0.0) + grace_s)
        except multiprocessing.TimeoutError:
            cause = f"no answer within the deadline of {self.deadline_s:g} s"
            servers = ", ".join((call.pool or self.pool).urls)
            error = GenerationServerError(servers, call.question, self.attempts, cause, "timeout")
        except GenerationServerError as failure:
            error = failure
        if is_marked(error):
            return error
        raise error from None

    def _ask(self, call: Call[T], *, deadline: float, stop: threading.Event) -> T:
        """One request with its retries; runs in a thread of the pool."""
        pool, broken = call.pool or self.pool, set[str]()
        retrying = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, ExchangeError) and _may_help(error, pool, broken)),
            stop=lambda state: (
                state.attempt_number >= self.attempts
                or stop.is_set()
                or time.monotonic() + state.upcoming_sleep >= deadline
            ),
            wait=lambda state: pause_within(pool, broken, self._backoff(state), deadline),
            sleep=sleep_using_event(stop),
            before_sleep=partial(_log_retry, call.question),
            reraise=True,
        )
        try:
            for attempt in retrying:
                with attempt:
                    return self._ask_once(call, pool, broken, attempt.retry_state, deadline)
        except ExchangeError as error:
            number = int(retrying.statistics["attempt_number"])
            cause = self._cause(error, number) if _may_help(error, pool, broken) else str(error)
            unanswered = unanswered_because(error)
            raise GenerationServerError(error.server, call.question, number, cause, unanswered) from error
        raise AssertionError("a retry loop ends with an answer or an exception")

    def _ask_once(self, call: Call[T], pool: ServerPool, broken: set[str], state: RetryCallState, deadline: float) -> T:
        server = pool.acquire(broken)
        rest_s: float | None = self._backoff(state)
        try:
            content = self._exchange.send(call.method, server.url, call.path, call.body, deadline)
            answer = call.parse(content, server.url)
            rest_s = None
        except AnswerError as error:
            raise ExchangeError(server.url, str(error), is_retryable=True) from error
        except ExchangeError as error:
            rest_s = error.retry_after_s if error.retry_after_s is not None else rest_s
            hide_prompt(error, call.body)
            if error.is_broken:
                broken.add(server.url)
            raise
        finally:
            pool.release(server, rest_s)
        return answer

    def _cause(self, error: ExchangeError, attempt: int) -> str:
        if attempt >= self.attempts:
            return f"{error} (the last of {self.attempts} attempts)"
        return f"{error} (the deadline of {self.deadline_s:g} s leaves no time for another attempt)"


def _may_help(error: ExchangeError, pool: ServerPool, broken: Collection[str]) -> bool:
    """Whether asking again may: the server says so, or it is broken and another one is not."""
    return error.is_retryable or (error.server in broken and len(broken) < len(pool.urls))


def _checked_url(url: str) -> str:
    """The server's address without the `/v1` that most clients are given it with."""
    return checked_url(url.rstrip("/").removesuffix("/v1"), "generation server", "http://host:port")


def _log_retry(question: str, state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    logger.warning(
        "generation server %s, %s, attempt %d: %s; asking again in %.1f s",
        error.server if isinstance(error, ExchangeError) else "?",
        question,
        state.attempt_number,
        error,
        state.upcoming_sleep,
    )
