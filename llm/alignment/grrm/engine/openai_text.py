"""Text from OpenAI-compatible servers (FastDeploy, vLLM, SGLang …); several URLs of one model are a pool."""

from __future__ import annotations

import logging
import math
import multiprocessing
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.pool import AsyncResult, ThreadPool
from typing import Any, Generic, Literal, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception
from tenacity.nap import sleep_using_event
from tenacity.wait import wait_exponential_jitter

from grrm.engine.openai_wire import (
    COMPLETIONS_PATH,
    MODELS_PATH,
    CompletionsExchange,
    completion_body,
    hide_prompt,
    read_completion,
    read_model_name,
    unanswered_because,
)
from grrm.errors import UserError
from grrm.judges.interface import GeneratedText
from grrm.rewards.exchange import ExchangeError
from grrm.rewards.protocol import AnswerError
from grrm.rewards.server_pool import ServerPool, checked_url

logger = logging.getLogger(__name__)
T = TypeVar("T")
Answer = TypeVar("Answer", covariant=True)
MARKS = ("timeout", "unreachable", "too_long")


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
class _Call(Generic[Answer]):
    """One request: what people call it, how it is sent, and how its answer is checked."""

    question: str
    method: str
    path: str
    body: bytes | None
    parse: Callable[[bytes], Answer]


class OpenAITextGenerator:
    """`judges.interface.TextGenerator` over `POST /v1/completions` of one server or a pool of equal ones.

    `model` is the model's name there; None asks the servers for the first they have. Prompts go out one per request,
    over at most `max_connections` connections at once. `attempts` counts tries per request over all servers;
    `deadline_s` bounds a whole `generate_text` call, retries included. Failed connections, time-outs, malformed
    answers and HTTP 408, 429, 502, 503 and 504 are retried, at once on a server that has not just failed, otherwise
    after an exponentially growing, jittered pause or the server's Retry-After; any other answer is final. `stop` are
    strings that end a reply, `token` is sent as bearer token. `seconds_left` is asked at every call for a limit tighter
    than `deadline_s`. With `unanswered` "mark" a prompt that no server took or finished in time does not raise, but is
    marked as `GeneratedText` describes, so that the others keep their replies; likewise one that a server refuses,
    unless it refuses them all. A prompt too long for the model always is marked. No message quotes a prompt. Raises
    UserError on settings that cannot work.
    """

    def __init__(
        self,
        urls: Sequence[str],
        model: str | None = None,
        *,
        stop: Sequence[str] = (),
        tokenizer: Any = None,
        token: str | None = None,
        connect_timeout_s: float = 5.0,
        read_timeout_s: float = 600.0,
        deadline_s: float = 1800.0,
        attempts: int = 6,
        max_connections: int = 32,
        backoff_initial_s: float = 0.5,
        backoff_max_s: float = 30.0,
        max_answer_bytes: int = 16 * 2**20,
        unanswered: Literal["raise", "mark"] = "raise",
        seconds_left: Callable[[], float] = lambda: math.inf,
    ) -> None:
        if not urls:
            raise UserError("no generation server is named: set its URL, for example http://127.0.0.1:8000")
        counts = {"attempts": attempts, "max_connections": max_connections}
        times = {"connect_timeout_s": connect_timeout_s, "read_timeout_s": read_timeout_s, "deadline_s": deadline_s}
        for name, value in (counts | times).items():
            if not (math.isfinite(value) and value > 0 and (name in times or value >= 1)):
                raise UserError(f"generation server setting {name}={value!r} must be a finite number above zero")
        self._pool = ServerPool([_checked_url(url) for url in urls])
        self._model, self._stop, self._tokenizer = model, tuple(stop), tokenizer
        self._unanswered, self._seconds_left = unanswered, seconds_left
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

    def generate_text(
        self,
        prompts: Sequence[str],
        *,
        temperature: float,
        top_p: float = 1.0,
        max_new_tokens: int,
        seeds: Sequence[int] | None = None,
    ) -> list[GeneratedText]:
        """One reply per prompt, order kept. Without `seeds` the servers draw as they like.

        Every reply was sent by a server for that very prompt. Raises GenerationServerError when some prompt got none
        within the attempts and the deadline (or marks it, see above), and ValueError when `seeds` and `prompts` differ
        in length.
        """
        if seeds is not None and len(seeds) != len(prompts):
            raise ValueError(f"{len(seeds)} seeds for {len(prompts)} prompts")
        if not prompts:
            return []
        deadline = time.monotonic() + min(self.deadline_s, self._seconds_left())
        if self._model is None:
            (found,) = self._ask_all([_Call("which model it has", "GET", MODELS_PATH, None, read_model_name)], deadline)
            if isinstance(found, GenerationServerError):
                if found.unanswered == "refused":
                    raise found
                return _with_marks([found] * len(prompts))
            self._model = found
        body = partial(
            completion_body,
            self._model,
            temperature=temperature,
            top_p=top_p,
            max_tokens=max_new_tokens,
            stop=self._stop,
        )
        calls = [
            _Call(
                f"prompt {index}",
                "POST",
                COMPLETIONS_PATH,
                body(prompt, seed=None if seeds is None else seeds[index]),
                read_completion,
            )
            for index, prompt in enumerate(prompts)
        ]
        answers = self._ask_all(calls, deadline)
        refused = [one for one in answers if isinstance(one, GenerationServerError) and one.unanswered == "refused"]
        if 1 < len(refused) == len(prompts):
            raise refused[0]  # that is no matter of a prompt
        return _with_marks(answers)

    def count_tokens(self, prompt: str) -> int:
        """Length of `prompt` in tokens; without a tokenizer in UTF-8 bytes, which no byte-level tokenizer exceeds."""
        if self._tokenizer is None:
            return len(prompt.encode("utf-8", "surrogatepass"))
        return len(self._tokenizer(prompt, add_special_tokens=False)["input_ids"])

    def _ask_all(self, calls: Sequence[_Call[T]], deadline: float) -> list[T | GenerationServerError]:
        """Answers aligned with `calls`. The threads are daemons: a stuck server cannot keep a failed process alive."""
        stop = threading.Event()
        ask = partial(self._ask, deadline=deadline, stop=stop)
        with ThreadPool(min(self.max_connections, len(calls))) as threads:
            arriving = [threads.apply_async(ask, (call,)) for call in calls]
            try:
                return [self._answer(*both, deadline) for both in zip(arriving, calls, strict=True)]
            finally:
                stop.set()

    def _answer(self, arriving: AsyncResult[T], call: _Call[T], deadline: float) -> T | GenerationServerError:
        """The answer to one call, or the failure that is to be marked."""
        grace_s = 1.0  # the request's own thread notices the deadline first and knows the cause
        try:
            return arriving.get(max(deadline - time.monotonic(), 0.0) + grace_s)
        except multiprocessing.TimeoutError:
            cause = f"no answer within the deadline of {self.deadline_s:g} s"
            error = GenerationServerError(", ".join(self._pool.urls), call.question, self.attempts, cause, "timeout")
        except GenerationServerError as failure:
            error = failure
        if error.unanswered == "too_long" or (self._unanswered == "mark" and error.unanswered is not None):
            return error
        raise error from None

    def _ask(self, call: _Call[T], *, deadline: float, stop: threading.Event) -> T:
        """One request with its retries; runs in a thread of the pool."""
        retrying = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, ExchangeError) and error.is_retryable),
            stop=lambda state: (
                state.attempt_number >= self.attempts
                or stop.is_set()
                or time.monotonic() + state.upcoming_sleep >= deadline
            ),
            wait=lambda state: self._pool.seconds_until_free(),
            sleep=sleep_using_event(stop),
            before_sleep=partial(_log_retry, call.question),
            reraise=True,
        )
        try:
            for attempt in retrying:
                with attempt:
                    return self._ask_once(call, attempt.retry_state, deadline)
        except ExchangeError as error:
            number = int(retrying.statistics["attempt_number"])
            cause, unanswered = self._cause(error, number), unanswered_because(error)
            raise GenerationServerError(error.server, call.question, number, cause, unanswered) from error
        raise AssertionError("a retry loop ends with an answer or an exception")

    def _ask_once(self, call: _Call[T], state: RetryCallState, deadline: float) -> T:
        server = self._pool.acquire()
        rest_s: float | None = self._backoff(state)
        try:
            answer = call.parse(self._exchange.send(call.method, server.url, call.path, call.body, deadline))
            rest_s = None
        except AnswerError as error:
            raise ExchangeError(server.url, str(error), is_retryable=True) from error
        except ExchangeError as error:
            rest_s = error.retry_after_s if error.retry_after_s is not None else rest_s
            hide_prompt(error, call.body)
            raise
        finally:
            self._pool.release(server, rest_s)
        return answer

    def _cause(self, error: ExchangeError, attempt: int) -> str:
        if not error.is_retryable:
            return str(error)
        if attempt >= self.attempts:
            return f"{error} (the last of {self.attempts} attempts)"
        return f"{error} (the deadline of {self.deadline_s:g} s leaves no time for another attempt)"


def _with_marks(answers: Sequence[GeneratedText | GenerationServerError]) -> list[GeneratedText]:
    """The replies, and in the place of each failure its mark; the log names the first failure."""
    failures = [answer for answer in answers if isinstance(answer, GenerationServerError)]
    if failures:
        logger.warning("%d of %d prompts without a reply, first: %s", len(failures), len(answers), failures[0])
    return [
        GeneratedText("", answer.unanswered if answer.unanswered in MARKS else "unreachable", 0)
        if isinstance(answer, GenerationServerError)
        else answer
        for answer in answers
    ]


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
