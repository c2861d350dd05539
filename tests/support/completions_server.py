"""An OpenAI-compatible completions server on a real socket whose replies a test writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from support.local_server import Handler, LocalServer

MODEL = "judge-7b"
Script = Callable[[dict[str, Any], int], Any]


def completion(text: str, finish_reason: str | None = "stop", n_tokens: int = 3) -> dict[str, Any]:
    choice = {"index": 0, "text": text, "finish_reason": finish_reason, "logprobs": None}
    return {"id": "c", "object": "text_completion", "choices": [choice], "usage": {"completion_tokens": n_tokens}}


def chat_completion(text: str) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "choices": [choice], "usage": {"completion_tokens": 3}}


class Refuse:
    """Answers with an HTTP status; `body` is sent as JSON."""

    def __init__(self, status: int, body: Any = None, **headers: str) -> None:
        self.status, self.body, self.headers = status, body, headers


class CompletionsServer(LocalServer):
    """Answers request k (0, 1, …) to /v1/completions and to /v1/chat/completions with `script(request, k)`.

    That is a reply's text, a whole answer, `Refuse`, or bytes to send as they are. `requests` keeps what was asked.
    Which model it has is answered with `model_status`.
    """

    def __init__(self, script: Script, model: str = MODEL) -> None:
        self.requests: list[dict[str, Any]] = []
        self.tokens: list[str | None] = []
        self.model_status = 200
        self._script, self._model = script, model
        super().__init__(self._answer)

    def _answer(self, handler: Handler, content: bytes) -> None:
        if handler.command == "GET":
            return handler.reply(self.model_status, {"object": "list", "data": [{"id": self._model}]})
        body = json.loads(content)
        with self.lock:
            number = len(self.requests)
            self.requests.append(body)
            self.tokens.append(handler.headers.get("Authorization"))
        answer = self._script(body, number)
        if isinstance(answer, Refuse):
            return handler.reply(answer.status, answer.body, **answer.headers)
        answered = chat_completion if "messages" in body else completion
        return handler.reply(200, answered(answer) if isinstance(answer, str) else answer)
