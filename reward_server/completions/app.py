"""The Flask application: models, completions and chat completions as OpenAI's clients know them."""

from __future__ import annotations

import json
import secrets
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack

from flask import Response

from grrm.engine.api import Request, SamplingParams
from grrm.engine.constraint import Constraint, json_constraint
from grrm.errors import UserError
from grrm.judges.interface import least_tokens

from ..application import Application, json_response
from ..bodies import BodyLimits, check_structure, client_has_gone, read_json_body
from ..metrics import COUNTERS, HISTOGRAMS, Metrics
from ..problems import RequestProblem, defect
from ..settings import CompletionSettings
from .answers import ChatForm, Form
from .replies import Choice, Replies, ServedModel
from .wire import COMPLETION_TOKENS, ChatRequest, CompletionRequest, read_request

MAX_LISTED = 2**20  # tokens of echoed prompts and their alternatives, in one answer
PROBE_S = 30.0  # what a model may take for one token; a large one on a CPU needs seconds
FIELDS = 1000  # of a request, its messages and their parts aside
COMPLETION_COUNTERS = {
    **{name: COUNTERS[name] for name in ("grrm_requests_total", "grrm_connections_closed_total")},
    "grrm_prompt_tokens_total": ("Tokens of the prompts of answered requests.", ()),
    "grrm_completion_tokens_total": ("Tokens written for them.", ()),
}


class CompletionsApp(Application):
    """The routes of OpenAI's protocol, and what they share."""

    open_routes = frozenset({("GET", "/health"), ("GET", "/healthz")})
    token_remedy = "give it to the client as its API key"

    def __init__(self, settings: CompletionSettings, model: ServedModel, token: str | None) -> None:
        self.settings, self.model = settings, model
        metrics = Metrics(
            COMPLETION_COUNTERS,
            {"grrm_request_seconds": HISTOGRAMS["grrm_request_seconds"]},
            {
                "grrm_sequences_running": ("Completions running now.", lambda: model.scheduler.n_running),
                "grrm_sequences_waiting": ("Completions waiting now.", lambda: model.scheduler.n_waiting),
            },
        )
        super().__init__(settings, metrics, token)
        self._created = int(time.time())
        n_texts = settings.max_prompts + FIELDS
        n_ids = settings.max_prompt_chars // 4  # about as many tokens as the longest texts have
        self._limits = BodyLimits(8 * n_texts, 2 * n_texts, 8 * n_texts + n_ids)
        views: list[tuple[str, str, Callable[..., Response]]] = [
            ("POST", "/v1/completions", self.post_completions),
            ("POST", "/v1/chat/completions", self.post_chat_completions),
            ("GET", "/v1/models", self.get_models),
            ("GET", "/v1/models/<path:name>", self.get_model),
            ("GET", "/health", self.get_health),
            ("GET", "/healthz", self.get_health),
            ("GET", "/readyz", self.get_readyz),
        ]
        self.add_routes(views)

    def error_body(self, problem: RequestProblem) -> bytes:
        """The error in OpenAI's form."""
        return json.dumps(_error(problem)).encode()

    def is_idle(self) -> bool:
        """True if no completion is under way."""
        return self.model.scheduler.n_running == 0

    def post_completions(self) -> Response:
        """Completions of complete prompts, given as texts or as token ids."""
        params = read_request(CompletionRequest, self._body())
        self._check_model(params.model)
        n_prompts = len(params.prompts)
        if n_prompts > self.settings.max_prompts or not n_prompts:
            raise RequestProblem(400, f"{n_prompts} prompts: send 1 to {self.settings.max_prompts}", field="prompt")
        self._check_chars("prompt", (prompt for prompt in params.prompts if isinstance(prompt, str)))
        form = self._form(Form, "cmpl", params)
        max_tokens = COMPLETION_TOKENS if params.max_tokens is None else params.max_tokens
        return self._complete(params, params.prompts, max_tokens, form)

    def post_chat_completions(self) -> Response:
        """The next turn of a chat, behind the model's chat template."""
        params = read_request(ChatRequest, self._body())
        self._check_model(params.model)
        if self.model.render is None:
            raise RequestProblem(400, "this server's model has no chat template: use /v1/completions", field="messages")
        turns = [message.turn() for message in params.messages]
        self._check_chars("messages", (turn["content"] for turn in turns))
        try:
            prompt = self.model.render(turns)
        except ValueError as error:
            raise RequestProblem(400, f"the chat template refuses these messages: {error}", field="messages") from error
        return self._complete(params, [prompt], params.limit, self._form(ChatForm, "chatcmpl", params))

    def get_models(self) -> Response:
        """The one model."""
        return json_response({"object": "list", "data": [self._card()]})

    def get_model(self, name: str) -> Response:
        """The model called `name`."""
        self._check_model(name)
        return json_response(self._card())

    def get_health(self) -> Response:
        """The process answers; its model was loaded before it took connections."""
        return json_response({"status": "alive"})

    def get_readyz(self) -> Response:
        """Readiness: completions are taken, and the engine did not fail last time, or draws a token now."""
        self.require_running()
        if self.model.scheduler.has_failed and not self._draws():
            raise RequestProblem(503, "the engine fails, the server's log has the details", retry_after_s=5)
        return json_response({"status": "ready"})

    def _draws(self) -> bool:
        """True if the engine draws a token; probes at the same time share it."""
        submission = self.model.scheduler.submit([Request([0], SamplingParams(1, temperature=0.0))])
        try:
            return submission.next(PROBE_S) is not None
        except Exception:  # noqa: BLE001 - the scheduler has logged it, and a probe is no place to fail
            return False
        finally:
            submission.cancel()

    def _complete(
        self,
        params: CompletionRequest | ChatRequest,
        sent: Sequence[str | list[int]],
        max_tokens: int | None,
        form: Form,
    ) -> Response:
        """The answer; without `max_tokens` a reply may fill the room behind the first prompt."""
        if len(sent) * params.n_choices > self.settings.max_choices:
            raise RequestProblem(400, f"n times the prompts exceeds {self.settings.max_choices}", field="n")
        with ExitStack() as resources:
            resources.enter_context(self.slot())
            constraint = self._constraint(params)
            try:
                prompts = self._encoded(sent, client_has_gone())
                replies = self._replies(params, sent, prompts, max_tokens, constraint)
            except UserError as error:
                raise RequestProblem(400, str(error), field="prompt") from error
            response = self._stream(params, form, replies) if params.stream else self._complete_reply(form, replies)
            resources.callback(self._finish, replies)
            response.call_on_close(resources.pop_all().close)
        return response

    def _replies(
        self,
        params: CompletionRequest | ChatRequest,
        sent: Sequence[str | list[int]],
        prompts: Sequence[list[int]],
        max_tokens: int | None,
        constraint: Constraint | None,
    ) -> Replies:
        most = self.model.scheduler.max_prompt_tokens + 1
        if params.echoes:
            n_listed = sum(map(len, prompts)) * params.n_choices * (1 + params.n_alternatives)
            if n_listed > MAX_LISTED:
                message = f"{n_listed} tokens and alternatives to echo exceed {MAX_LISTED}: send fewer prompts"
                raise RequestProblem(400, message, field="prompt")
        sampling = SamplingParams(
            # Where none is asked for, the engine draws one that is left out.
            max_new_tokens=min(most - len(prompts[0]) if max_tokens is None else max(max_tokens, 1), most),
            temperature=1.0 if params.temperature is None else params.temperature,
            top_p=1.0 if params.top_p is None else params.top_p,
            top_k=max(params.top_k or 0, 0),
            repetition_penalty=1.0 if params.repetition_penalty is None else params.repetition_penalty,
            frequency_penalty=params.frequency_penalty or 0.0,
            presence_penalty=params.presence_penalty or 0.0,
            stop_token_ids=self.model.stop_token_ids,
            logprobs=params.wants_logprobs,
            top_logprobs=params.n_alternatives,
            prompt_logprobs=params.echoes and params.wants_logprobs,
            constraint=constraint,
        )
        return Replies(
            self.model,
            prompts,
            sampling,
            n_choices=params.n_choices,
            stream_id=secrets.randbits(63) if params.seed is None else params.seed,
            stops=params.stops,
            streams=bool(params.stream),
            echo=[t if isinstance(t, str) else self.model.decode_all(t) for t in sent] if params.echoes else (),
            is_dry=max_tokens == 0,
        )

    def _constraint(self, params: CompletionRequest | ChatRequest) -> Constraint | None:
        schema = None if params.response_format is None else params.response_format.schema_of_answers
        try:
            return None if schema is None else json_constraint(schema, self.model.vocabulary)
        except UserError as error:
            raise RequestProblem(400, str(error), field="response_format", code="invalid_value") from error

    def _check_chars(self, param: str, texts: Iterable[str]) -> None:
        """Raises RequestProblem for more text than a request may have, before anything is done with it."""
        n_chars, limit = sum(map(len, texts)), self.settings.max_prompt_chars
        if n_chars > limit:
            raise RequestProblem(400, f"{n_chars} characters exceed the limit of {limit} of a request", field=param)

    def _encoded(self, sent: Sequence[str | list[int]], is_gone: Callable[[], bool]) -> list[list[int]]:
        """The prompts as tokens; of one that is too long no more are made than are needed to tell."""
        timeout_s, limit = self.settings.request_timeout_s, self.model.scheduler.max_prompt_tokens
        ends = time.monotonic() + timeout_s
        prompts = []
        for prompt in sent:
            if is_gone():
                raise RequestProblem(503, "the client has gone", code="client_gone")
            if time.monotonic() > ends:
                raise RequestProblem(504, f"the completion took longer than {timeout_s:g} s", code="timeout")
            if isinstance(prompt, str):
                least = least_tokens(lambda text: len(self.model.encode(text)), prompt, limit)
                if least > limit:
                    raise self._too_long(f"more than {least}")
                prompt = self.model.encode(prompt)
            if len(prompt) > limit:
                raise self._too_long(str(len(prompt)))
            prompts.append(prompt)
        return prompts

    def _complete_reply(self, form: Form, replies: Replies) -> Response:
        choices = [Choice() for _ in range(replies.n_choices)]
        is_gone = client_has_gone()
        for piece in replies.pieces(is_gone, self.settings.request_timeout_s):
            choices[piece.index].add(piece)
        if is_gone():
            raise RequestProblem(503, "the client has gone", code="client_gone")
        return json_response(form.complete(choices, replies))

    def _stream(self, params: CompletionRequest | ChatRequest, form: Form, replies: Replies) -> Response:
        events = self._events(params, form, replies, client_has_gone())
        return Response(events, mimetype="text/event-stream", headers={"Cache-Control": "no-cache"})

    def _events(
        self, params: CompletionRequest | ChatRequest, form: Form, replies: Replies, is_gone: Callable[[], bool]
    ) -> Iterator[bytes]:
        begun: set[int] = set()
        try:
            for piece in replies.pieces(is_gone, self.settings.request_timeout_s):
                for chunk in form.chunks(piece, is_first=piece.index not in begun):
                    yield _event(chunk)
                begun.add(piece.index)
            if params.wants_usage:
                yield _event(form.last_chunk(replies))
            yield b"data: [DONE]\n\n"
        except RequestProblem as error:
            yield _event(_error(error))
        except Exception as error:  # noqa: BLE001 - the answer has begun: its end is the place to tell
            yield _event(_error(defect(error)))

    def _finish(self, replies: Replies) -> None:
        replies.cancel()
        self.metrics.add("grrm_prompt_tokens_total", replies.n_prompt_tokens)
        self.metrics.add("grrm_completion_tokens_total", replies.n_tokens)

    def _form(self, kind: type[Form], prefix: str, params: CompletionRequest | ChatRequest) -> Form:
        return kind(
            f"{prefix}-{uuid.uuid4().hex}",
            int(time.time()),
            self.model.name,
            params.wants_logprobs,
        )

    def _body(self) -> bytes:
        body = read_json_body()
        check_structure(body, self._limits)
        return body

    def _check_model(self, name: str) -> None:
        if name != self.model.name:
            message = f"The model `{name[:200]}` does not exist: this server has `{self.model.name}`"
            raise RequestProblem(404, message, field="model", code="model_not_found")

    def _too_long(self, n_tokens: str) -> RequestProblem:
        most = self.model.scheduler.max_prompt_tokens + 1
        message = f"This model's maximum context length is {most} tokens, but the prompt has {n_tokens}."
        return RequestProblem(400, message, field="prompt", code="context_length_exceeded")

    def _card(self) -> dict[str, object]:
        return {"id": self.model.name, "object": "model", "created": self._created, "owned_by": "paddle-grrm"}


def _error(problem: RequestProblem) -> dict[str, object]:
    kind = "invalid_request_error" if problem.status < 500 else "server_error"
    return {"error": {"message": problem.message, "type": kind, "param": problem.field, "code": problem.code}}


def _event(message: dict[str, object]) -> bytes:
    return f"data: {json.dumps(message, allow_nan=False)}\n\n".encode()
