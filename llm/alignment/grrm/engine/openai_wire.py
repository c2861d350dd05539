"""The OpenAI completions protocol: what is asked, what an answer must hold, and what a refusal says."""

from __future__ import annotations

import json
import re
from typing import Annotated

import requests
import urllib3
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from requests.adapters import HTTPAdapter

from grrm.judges.interface import GeneratedText, TokenChoices
from grrm.rewards.exchange import RETRYABLE_STATUSES, ExchangeError, HttpExchange, parse_retry_after
from grrm.rewards.protocol import AnswerError, clean_text
from grrm.rewards.validation import first_error

# What HTTP says when the model behind a gateway took too long.
_LATE_STATUSES = frozenset({408, 504})
# How servers refuse a prompt that leaves their model no room for the reply; there is no status for it alone.
_REFUSED_STATUSES = frozenset({400, 413, 422})
_NO_ROOM = re.compile(
    r"context[ _](?:length|size|window)|max_model_len|(?:prompt|input)\b.{0,80}\btoo long", re.IGNORECASE
)
COMPLETIONS_PATH = "/v1/completions"
MODELS_PATH = "/v1/models"


class _Answer(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)  # a traceback in a log has no texts


class _Logprobs(_Answer):
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(_Answer):
    text: str
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Usage(_Answer):
    completion_tokens: Annotated[int, Field(ge=0)]


class _Completion(_Answer):
    choices: Annotated[list[_Choice], Field(min_length=1, max_length=1)]
    usage: _Usage


class _Model(_Answer):
    id: str


class _Models(_Answer):
    data: Annotated[list[_Model], Field(min_length=1)]


class _Complaint(_Answer):
    message: str


class _Refusal(_Answer):
    error: _Complaint | str | None = None
    message: str = ""


def completion_body(
    model: str,
    prompt: str,
    *,
    temperature: float,
    top_p: float,
    max_tokens: int,
    stop: tuple[str, ...],
    seed: int | None,
    top_logprobs: int = 0,
) -> bytes:
    """The request for one reply to one complete prompt; what is empty or 0 of the last three is left out."""
    body: dict[str, object] = {
        "model": model,
        "prompt": clean_text(prompt),
        "n": 1,
        "temperature": temperature,
        "top_p": top_p,
        "max_tokens": max_tokens,
    }
    if stop:
        body["stop"] = list(stop)
    if seed is not None:
        body["seed"] = seed
    if top_logprobs:
        body["logprobs"] = top_logprobs
    return json.dumps(body).encode()


def read_completion(content: bytes, with_choices: bool = False) -> GeneratedText:
    """The reply in a completions answer, `with_choices` of its tokens.

    Raises AnswerError when the answer is malformed, lacks the choices that were asked for, or the reply did not end by
    itself or at its limit: a reply that the server broke off is no reply.
    """
    try:
        answer = _Completion.model_validate_json(content)
    except ValidationError as error:
        raise _malformed(error) from error
    choice = answer.choices[0]
    if choice.finish_reason not in ("stop", "length"):
        raise AnswerError(f"the reply ended with finish_reason {choice.finish_reason!r}, not 'stop' or 'length'")
    tokens = _choices(choice.logprobs) if with_choices else ()
    return GeneratedText(choice.text, choice.finish_reason, answer.usage.completion_tokens, tokens)


def _choices(logprobs: _Logprobs | None) -> tuple[TokenChoices, ...]:
    tops = None if logprobs is None else logprobs.top_logprobs
    if logprobs is None or tops is None or len(tops) != len(logprobs.tokens):
        raise AnswerError("the answer has no top_logprobs of its tokens, which were asked for")
    return tuple(
        TokenChoices(text, tuple((top or {}).items())) for text, top in zip(logprobs.tokens, tops, strict=True)
    )


def read_model_name(content: bytes) -> str:
    """The first model that a server lists. Raises AnswerError when it lists none."""
    try:
        return _Models.model_validate_json(content).data[0].id
    except ValidationError as error:
        raise _malformed(error) from error


def _malformed(error: ValidationError) -> AnswerError:
    _, place, message = first_error(error)
    return AnswerError(f"the answer is malformed at {place or 'its top level'}: {message}")


class CompletionsExchange(HttpExchange):
    """`HttpExchange` that quotes the reason these servers give for a refusal, over up to `max_connections` at once."""

    def __init__(
        self,
        *,
        token: str | None,
        connect_timeout_s: float,
        read_timeout_s: float,
        max_answer_bytes: int,
        max_connections: int,
    ) -> None:
        super().__init__(
            token=token,
            connect_timeout_s=connect_timeout_s,
            read_timeout_s=read_timeout_s,
            max_answer_bytes=max_answer_bytes,
        )
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(pool_maxsize=max_connections))

    def _content(self, server: str, response: requests.Response, deadline: float) -> bytes:
        content = super()._content(server, response, deadline)
        reason = "" if response.status_code == 200 else refusal_reason(content)
        if not reason:
            return content
        raise ExchangeError(
            server,
            f"it answered HTTP {response.status_code}: {reason}",
            is_retryable=response.status_code in RETRYABLE_STATUSES,
            http_status=response.status_code,
            retry_after_s=parse_retry_after(response.headers.get("Retry-After")),
        )


def refusal_reason(content: bytes) -> str:
    """What an error body says, on one line of at most 300 characters; empty for a body of another form."""
    try:
        refusal = _Refusal.model_validate_json(content)
    except ValidationError:
        return ""
    error = refusal.error.message if isinstance(refusal.error, _Complaint) else refusal.error
    return " ".join((error or refusal.message).split())[:300].rstrip(".")


def hide_prompt(error: ExchangeError, body: bytes | None) -> None:
    """Cuts the message of `error` down to what it is where it quotes the prompt in the request's `body`.

    Servers quote what they refuse, and the message goes to logs, which hold no texts.
    """
    if body is None or error.http_status is None:
        return
    prompt = json.loads(body).get("prompt", "")
    prompt = prompt if isinstance(prompt, str) else str(prompt)  # token ids
    if _quotes(str(error), prompt + repr(prompt) + json.dumps(prompt)):
        what = "the prompt is too long" if _has_no_room(error) else "the reason quotes the prompt and is left out"
        error.args = (f"it answered HTTP {error.http_status}: {what}",)


def _quotes(message: str, text: str) -> bool:
    """Whether a piece of the message is in `text`: 12 characters, or 4 of a script in which a word has as few."""
    sizes = ((12, False), (4, True))
    return any(
        piece in text
        for size, is_foreign in sizes
        for start in range(len(message) - size + 1)
        if not (piece := message[start : start + size]).isascii() or not is_foreign
    )


def _has_no_room(error: ExchangeError) -> bool:
    return error.http_status in _REFUSED_STATUSES and _NO_ROOM.search(str(error)) is not None


def unanswered_because(error: ExchangeError) -> str | None:
    """ "too_long" for a prompt that the model has no room for, "refused" for one that the server takes for wrong,
    "timeout" or "unreachable" for one that no server took or finished; None for one that was answered.

    Any other refusal that asking again cannot mend, and an answer that is malformed, are answers.
    """
    if error.http_status in _REFUSED_STATUSES:
        return "too_long" if _has_no_room(error) else "refused"
    cause = error.__cause__
    if not error.is_retryable or isinstance(cause, AnswerError):
        return None
    if error.http_status is not None:
        return "timeout" if error.http_status in _LATE_STATUSES else "unreachable"
    if isinstance(cause, requests.ConnectTimeout):
        return "unreachable"
    is_late = cause is None or isinstance(cause, requests.Timeout | urllib3.exceptions.TimeoutError)
    return "timeout" if is_late else "unreachable"
