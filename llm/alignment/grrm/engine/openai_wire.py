"""The OpenAI completions protocol: what is asked, what an answer must hold, and what a refusal says."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from grrm.http_client.client import Call, HttpClient, NoAnswer
from grrm.http_client.exchange import AnswerError, Failure, parse_answer
from grrm.judges.interface import GeneratedText, TokenChoices

T = TypeVar("T")
# How servers refuse a prompt that leaves their model no room for the reply; there is no status for it alone.
_REFUSED_STATUSES = frozenset({400, 413, 422})
_TOO_LONG = re.compile(
    r"context[ _](?:length|size|window)|max_model_len|(?:prompt|input)\b.{0,80}\btoo long", re.IGNORECASE
)
_UNANSWERED = {
    Failure.LATE: "timeout",
    Failure.UNSENT: "timeout",
    Failure.AWAY: "unreachable",
    Failure.CUT: "unreachable",
    Failure.BROKEN: "failed",
    Failure.MALFORMED: "failed",
}
COMPLETIONS_PATH, CHAT_PATH = "/v1/completions", "/v1/chat/completions"
MODELS_PATH = "/v1/models"
MAX_LOGPROB = 0.01  # 0, and rounding


class WireAnswer(BaseModel):
    """The part of an answer that is read."""

    model_config = ConfigDict(hide_input_in_errors=True)  # a traceback in a log has no texts


class _Logprobs(WireAnswer):
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(WireAnswer):
    text: str
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Usage(WireAnswer):
    completion_tokens: Annotated[int, Field(ge=0)]


class _Completion(WireAnswer):
    choices: Annotated[list[_Choice], Field(min_length=1, max_length=1)]
    usage: _Usage


class _Message(WireAnswer):
    content: str | None = None


class _Reply(WireAnswer):
    message: _Message
    finish_reason: str | None = None


class _Chat(WireAnswer):
    choices: Annotated[list[_Reply], Field(min_length=1, max_length=1)]
    usage: _Usage


class _Model(WireAnswer):
    id: str


class _Models(WireAnswer):
    data: Annotated[list[_Model], Field(min_length=1)]


class CompletionCall(Call[T]):
    """A request for one completion, whose body has the prompt under "prompt", or as messages."""

    def redacted(self, cause: str, status: int) -> str:
        """`cause` without its reason where that quotes the prompt: servers do, and logs hold no texts."""
        fields = json.loads(self.body or b"{}")
        prompt = fields.get("prompt", "".join(turn["content"] for turn in fields.get("messages", ())))
        prompt = prompt if isinstance(prompt, str) else str(prompt)  # token ids
        if not _quotes(cause, prompt + repr(prompt) + json.dumps(prompt)):
            return cause
        what = (
            "the prompt is too long" if _is_too_long(status, cause) else "the reason quotes the prompt and is left out"
        )
        return f"it answered HTTP {status}: {what}"


def completions_client(urls: Sequence[str], **settings: Any) -> HttpClient:
    """A client of servers given with or without `/v1`; `settings` and errors are those of `HttpClient`."""
    addresses = urls if isinstance(urls, str) else [url.rstrip("/").removesuffix("/v1") for url in urls]
    return HttpClient(addresses, "generation server", MODELS_PATH, **settings)


def read_completion(content: bytes, with_choices: bool = False) -> GeneratedText:
    """The reply in a completions answer, `with_choices` of its tokens.

    Raises AnswerError when the answer is malformed, lacks the choices that were asked for, or the reply did not end by
    itself or at its limit: a reply that the server broke off is no reply.
    """
    answer = parse_answer(_Completion, content)
    choice = answer.choices[0]
    reason = _ended_by(choice)
    tokens = _choices(choice.logprobs) if with_choices else ()
    return GeneratedText(choice.text, reason, answer.usage.completion_tokens, tokens)


def read_chat(content: bytes) -> GeneratedText:
    """The reply in an answer of the chat endpoint. Raises AnswerError as `read_completion`."""
    answer = parse_answer(_Chat, content)
    (choice,) = answer.choices
    return GeneratedText(choice.message.content or "", _ended_by(choice), answer.usage.completion_tokens)


def _ended_by(choice: _Choice | _Reply) -> str:
    if choice.finish_reason not in ("stop", "length"):
        raise AnswerError(f"the reply ended with finish_reason {choice.finish_reason!r}, not 'stop' or 'length'")
    return choice.finish_reason


def _choices(logprobs: _Logprobs | None) -> tuple[TokenChoices, ...]:
    tops = None if logprobs is None else logprobs.top_logprobs
    if logprobs is None or tops is None or len(tops) != len(logprobs.tokens):
        raise AnswerError("the answer has no top_logprobs of its tokens, which were asked for")
    if not all(logprob <= MAX_LOGPROB for top in tops for logprob in (top or {}).values()):
        raise AnswerError("the answer has a log-probability that is none")
    return tuple(
        TokenChoices(text, tuple((top or {}).items())) for text, top in zip(logprobs.tokens, tops, strict=True)
    )


WHICH_MODEL: Call[str] = Call(
    "which model it has", MODELS_PATH, None, lambda content, server: parse_answer(_Models, content).data[0].id, "GET"
)


def served_model(urls: Sequence[str], seconds: float, token: str | None = None) -> str:
    """The name of the first model that a server of the pool has. Raises NoAnswer where none says so in time."""
    client = completions_client(urls, token=token, deadline_s=seconds)
    try:
        return client.ask_all([WHICH_MODEL], time.monotonic() + seconds)[0]
    finally:
        client.close()


def _quotes(message: str, text: str) -> bool:
    """Return whether `text` contains a piece of the message: 12 characters, or 4 of a script with words that short."""
    sizes = ((12, False), (4, True))
    return any(
        piece in text
        for size, is_foreign in sizes
        for start in range(len(message) - size + 1)
        if not (piece := message[start : start + size]).isascii() or not is_foreign
    )


def _is_too_long(status: int | None, cause: str) -> bool:
    return status in _REFUSED_STATUSES and _TOO_LONG.search(cause) is not None


def unanswered_because(error: NoAnswer) -> str | None:
    """ "too_long" for a prompt that the model has no room for, "refused" for one that the server takes for wrong,
    "failed" for one on which it failed itself (500 and the like) or gave no whole answer, "timeout" or "unreachable"
    for one that no server took or finished; None for any other refusal, which asking again cannot mend.
    """
    if error.status in _REFUSED_STATUSES:
        return "too_long" if _is_too_long(error.status, error.cause) else "refused"
    return _UNANSWERED.get(error.failure)
