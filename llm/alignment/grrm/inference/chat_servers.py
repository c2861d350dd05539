"""Text from the chat endpoint of OpenAI-compatible servers, which apply their model's own chat template."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from grrm.engine.openai_wire import WHICH_MODEL, CompletionCall, completions_client, unanswered_because
from grrm.errors import UserError
from grrm.http_client.client import NoAnswer
from grrm.http_client.messages import AnswerError, clean_text, parse_answer
from grrm.judges.interface import GeneratedText, OpenedGenerator

logger = logging.getLogger(__name__)
SERVER_TEMPLATE = "server"  # the chat template that stands for this endpoint
CHAT_PATH = "/v1/chat/completions"


class _Answer(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)  # a traceback in a log has no texts


class _Message(_Answer):
    content: str | None = None


class _Choice(_Answer):
    message: _Message
    finish_reason: str | None = None


class _Usage(_Answer):
    completion_tokens: Annotated[int, Field(ge=0)]


class _Chat(_Answer):
    choices: Annotated[list[_Choice], Field(min_length=1, max_length=1)]
    usage: _Usage


class _ChatCall(CompletionCall[GeneratedText]):
    def redacted(self, cause: str, status: int) -> str:
        """As that of a call with the same text as its prompt."""
        (turn,) = json.loads(self.body or b"")["messages"]
        body = json.dumps({"prompt": turn["content"]}).encode()
        return CompletionCall(self.question, self.path, body, self.read).redacted(cause, status)


class ChatGenerator:
    """`TextGenerator` over `POST /v1/chat/completions`: each prompt is a user's turn, which the server renders.

    `model` is the model's name there; None asks for the first. A prompt without a reply is marked, see `GeneratedText`.
    The first call raises UserError if no server accepts a connection within `required_within_s`. `settings` are those
    of `HttpClient`. Raises UserError for settings that cannot work.
    """

    def __init__(
        self, urls: Sequence[str], model: str | None = None, required_within_s: float | None = None, **settings: Any
    ) -> None:
        self._client, self._model = completions_client(urls, **settings), model
        self._required_within_s = required_within_s

    def generate_text(
        self,
        prompts: Sequence[str],
        *,
        temperature: float,
        top_p: float = 1.0,
        max_new_tokens: int,
        seeds: Sequence[int] | None = None,
        top_logprobs: int = 0,
    ) -> list[GeneratedText]:
        """One reply per prompt, order kept.

        Raises NoAnswer if the servers refuse all of several prompts, and UserError for `top_logprobs`.
        """
        if top_logprobs:
            raise UserError("score_reading needs chat_template chatml or checkpoint: a chat endpoint continues no text")
        if self._required_within_s is not None:
            self._client.require_any(min(self._required_within_s, self._client.deadline_s))
            self._required_within_s = None
        deadline = time.monotonic() + self._client.deadline_s
        if self._model is None and prompts:
            (answer,) = self._client.try_all([WHICH_MODEL], deadline, lambda error: True)
            if isinstance(answer, NoAnswer):
                return _marked([answer] * len(prompts))
            self._model = answer
        sampled = {"temperature": temperature, "top_p": top_p, "max_tokens": max_new_tokens}
        calls = [
            _ChatCall(
                f"prompt {index}",
                CHAT_PATH,
                json.dumps(
                    {"model": self._model, "messages": [{"role": "user", "content": clean_text(prompt)}], **sampled}
                    | ({} if seeds is None else {"seed": seeds[index]})
                ).encode(),
                lambda content, server: _read(content),
            )
            for index, prompt in enumerate(prompts)
        ]
        answers = self._client.try_all(calls, deadline, lambda error: unanswered_because(error) is not None)
        refused = [
            answer for answer in answers if isinstance(answer, NoAnswer) and unanswered_because(answer) == "refused"
        ]
        if 1 < len(refused) == len(prompts):
            raise refused[0]
        return _marked(answers)

    def count_tokens(self, prompt: str) -> int:
        """Length in UTF-8 bytes, which no byte-level tokenizer exceeds."""
        return len(prompt.encode("utf-8", "surrogatepass"))


def served_model(urls: Sequence[str], seconds: float, token: str | None = None) -> str:
    """The name of the first model that a server of the pool has. Raises NoAnswer where none says so in time."""
    client = completions_client(urls, token=token, deadline_s=seconds)
    try:
        return client.ask_all([WHICH_MODEL], time.monotonic() + seconds)[0]
    finally:
        client.close()


def open_chat_servers(urls: Sequence[str], model: str | None = None, **settings: Any) -> OpenedGenerator:
    """A pool of servers whose chat endpoint is asked; `settings` as for `ChatGenerator`."""
    return OpenedGenerator(ChatGenerator(urls, model, **settings), str, None, counts_tokens=False)


def _read(content: bytes) -> GeneratedText:
    answer = parse_answer(_Chat, content)
    choice = answer.choices[0]
    if choice.finish_reason not in ("stop", "length"):
        raise AnswerError(f"the reply ended with finish_reason {choice.finish_reason!r}, not 'stop' or 'length'")
    return GeneratedText(choice.message.content or "", choice.finish_reason, answer.usage.completion_tokens)


def _marked(answers: Sequence[GeneratedText | NoAnswer]) -> list[GeneratedText]:
    failures = [answer for answer in answers if isinstance(answer, NoAnswer)]
    if failures:
        logger.warning("%d of %d prompts without a reply, first: %s", len(failures), len(answers), failures[0])
    return [GeneratedText("", _mark(answer), 0) if isinstance(answer, NoAnswer) else answer for answer in answers]


def _mark(error: NoAnswer) -> str:
    reason = unanswered_because(error)
    return reason if reason in ("too_long", "timeout") else "unreachable"
