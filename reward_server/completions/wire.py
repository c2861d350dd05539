"""The requests of `/v1/completions` and `/v1/chat/completions`.

Every parameter of the protocol has its effect or is refused by name; a value that asks for nothing is let pass.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import Field, FiniteFloat, ValidationError

from grrm.errors import first_error
from grrm.rewards.messages import WireModel

from ..problems import RequestProblem

MAX_STOPS = 16
MAX_CHOICES = 128
MAX_LOGPROBS = 20  # of a token
COMPLETION_TOKENS = 16  # of a completion that names no `max_tokens`, as OpenAI's
Stop: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]
Nothing: TypeAlias = Annotated[list[Any], Field(max_length=0)] | None
TokenIds: TypeAlias = Annotated[list[int], Field(fail_fast=True)]
# What a parameter of several forms may be: part of its place in the body -> forms.
_FORMS = {
    "prompt": "it must be a text, a list of texts, or token ids in a list or in several",
    "stop": f"it must be a text that is not empty, or a list of up to {MAX_STOPS} such texts",
    "content": "a message's content must be a text, or a list of parts of type text",
}
# Parameters that have no effect here, and the values with which they have none anywhere.
_WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    "logit_bias": ({},),
    "suffix": ("",),
    "best_of": (1,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),  # there are no tools to call
    "modalities": (["text"],),
    "service_tier": ("auto", "default"),
    "store": (False,),
}
Request = TypeVar("Request", "CompletionRequest", "ChatRequest")


class StreamOptions(WireModel):
    """Of a stream: whether a last chunk tells the tokens."""

    include_usage: bool = False


class JsonSchema(WireModel):
    """A named schema. With `strict` or without it, answers follow it."""

    name: str
    description: str | None = None
    json_schema: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(WireModel):
    """The form of answers."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    def check(self) -> None:
        """Raises RequestProblem for a schema that is missing, or that would have no effect."""
        if (self.type == "json_schema") != (self.json_schema is not None):
            needs = "needs a" if self.json_schema is None else "takes no"
            message = f"parameter response_format: type {self.type} {needs} json_schema"
            raise RequestProblem(400, message, field="response_format", code="invalid_value")

    @property
    def schema_of_answers(self) -> dict[str, Any] | None:
        """The schema that answers follow, None for text."""
        if self.type == "json_object":
            return {"type": "object"}
        return self.json_schema.json_schema if self.type == "json_schema" and self.json_schema else None


class _Sampled(WireModel):
    """The common parameters of both requests."""

    model: str
    temperature: Annotated[FiniteFloat, Field(ge=0, le=100)] | None = None
    top_p: Annotated[FiniteFloat, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None  # as vLLM's: -1 and 0 are off
    repetition_penalty: Annotated[FiniteFloat, Field(ge=0.01, le=100)] | None = None  # as vLLM's
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=MAX_STOPS)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    user: str | None = None  # whom the client asks for: of no use here
    frequency_penalty: Annotated[FiniteFloat, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[FiniteFloat, Field(ge=-2, le=2)] | None = None
    logit_bias: Any = None
    response_format: ResponseFormat | None = None

    @property
    def n_choices(self) -> int:
        """Completions of every prompt."""
        return self.n or 1

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts that end a completion."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def wants_usage(self) -> bool:
        """True if a stream ends with the numbers of tokens."""
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionRequest(_Sampled):
    """The body of `POST /v1/completions`."""

    prompt: str | Annotated[list[str], Field(fail_fast=True)] | TokenIds | list[TokenIds]
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    echo: bool | None = None
    max_tokens: Annotated[int, Field(ge=0)] | None = None  # 0 with echo: the prompt's log-probabilities alone
    suffix: Any = None
    best_of: Any = None

    @property
    def prompts(self) -> Sequence[str | list[int]]:
        """Each prompt, as text or as token ids."""
        prompt: Any = self.prompt
        return [prompt] if isinstance(prompt, str) or (prompt and isinstance(prompt[0], int)) else prompt

    @property
    def wants_logprobs(self) -> bool:
        """True if the log-probabilities of the sampled tokens are requested."""
        return self.logprobs is not None

    @property
    def n_alternatives(self) -> int:
        """Alternatives of every token."""
        return self.logprobs or 0

    @property
    def echoes(self) -> bool:
        """True if the choices begin with the prompt."""
        return bool(self.echo)

    def check(self) -> None:
        """Raises RequestProblem for what cannot be done."""
        if self.logprobs and self.stream:
            raise _unsupported("logprobs", "a stream has those of the tokens drawn alone: send 0")
        if self.echo and self.stream:
            raise _unsupported("echo", "a stream has the completion alone: leave one of them out")
        if self.max_tokens == 0 and not self.echo:
            raise RequestProblem(
                400, "parameter max_tokens: 0 asks for nothing without echo", field="max_tokens", code="invalid_value"
            )


class TextPart(WireModel):
    """A part of a message; this model reads text only."""

    type: Annotated[str, Field(pattern="^text$")]
    text: str


class Message(WireModel):
    """One turn of a chat."""

    role: Annotated[str, Field(pattern="^(system|developer|user|assistant)$")]
    content: str | list[TextPart]
    name: str | None = None  # of the speaker: no template here shows it
    # Fields of answers, which clients send back with the message: empty they ask for nothing.
    refusal: None = None
    annotations: Nothing = None
    audio: None = None
    function_call: None = None
    tool_calls: Nothing = None

    def turn(self) -> dict[str, str]:
        """The turn as chat templates take it."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class ChatRequest(_Sampled):
    """The body of `POST /v1/chat/completions`."""

    messages: Annotated[list[Message], Field(min_length=1, fail_fast=True)]
    logprobs: bool | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    metadata: Any = None  # for the client's own records
    safety_identifier: str | None = None  # this and the next took the place of `user`
    prompt_cache_key: str | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    tools: Any = None
    tool_choice: Any = None
    parallel_tool_calls: Any = None
    modalities: Any = None
    service_tier: Any = None
    store: Any = None

    @property
    def wants_logprobs(self) -> bool:
        """True if the log-probabilities of the sampled tokens are requested."""
        return bool(self.logprobs)

    @property
    def n_alternatives(self) -> int:
        """Alternatives of every token."""
        return self.top_logprobs or 0

    @property
    def echoes(self) -> bool:
        """False: a chat's reply is its own."""
        return False

    @property
    def limit(self) -> int | None:
        """The most tokens that a reply may have, None for as many as there is room for."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    def check(self) -> None:
        """Raises RequestProblem for what cannot be done."""
        if self.top_logprobs and not self.logprobs:
            raise RequestProblem(
                400, "parameter top_logprobs needs logprobs: true", field="top_logprobs", code="invalid_value"
            )
        if self.top_logprobs and self.stream:
            raise _unsupported("top_logprobs", "a stream has the log-probs of the tokens drawn alone: send 0")


def read_request(kind: type[Request], body: bytes) -> Request:
    """The request in `body`. Raises RequestProblem for the first parameter that is wrong or without effect."""
    try:
        request = kind.model_validate_json(body)
    except ValidationError as error:
        raise _malformed(error) from error
    for name, harmless in _WITHOUT_EFFECT.items():
        value = getattr(request, name, None)  # a text has no tools
        if value is not None and value not in harmless:
            shown = " or ".join(json.dumps(permitted) for permitted in harmless)
            raise _unsupported(name, f"leave it out, or send {shown}")
    if request.response_format is not None:
        request.response_format.check()
    request.check()
    return request


def _malformed(error: ValidationError) -> RequestProblem:
    kind, location, message = first_error(error)
    if kind == "json_invalid":
        return RequestProblem(400, f"the body is not JSON: {message}")
    param = location.partition(".")[0].partition("[")[0] or None
    if kind == "extra_forbidden" and "." not in location:
        return RequestProblem(
            400, f"Unrecognized request argument supplied: {param}", field=param, code="unknown_parameter"
        )
    message = next((form for part, form in _FORMS.items() if kind != "missing" and part in location), message)
    return RequestProblem(400, f"parameter {param}: {message}" if param else message, field=param, code="invalid_value")


def _unsupported(param: str, remedy: str) -> RequestProblem:
    return RequestProblem(
        400, f"parameter {param} is not supported: {remedy}", field=param, code="unsupported_parameter"
    )
