"""An OpenAI-compatible completions server on a real socket whose replies a test writes."""

from __future__ import annotations

import json
import threading
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
        self.paths: list[str] = []
        self.tokens: list[str | None] = []
        self.model_status = 200
        lock = threading.Lock()
        outer = self

        class Answers(Handler):
            def do_GET(self) -> None:
                outer.paths.append(self.path)
                self.send(outer.model_status, {"object": "list", "data": [{"id": model}]})

            def do_POST(self) -> None:
                body = json.loads(self.body())
                with lock:
                    number = len(outer.requests)
                    outer.requests.append(body)
                    outer.paths.append(self.path)
                    outer.tokens.append(self.headers.get("Authorization"))
                answer = script(body, number)
                if isinstance(answer, Refuse):
                    self.send(answer.status, answer.body, **answer.headers)
                else:
                    answered = chat_completion if "messages" in body else completion
                    self.send(200, answered(answer) if isinstance(answer, str) else answer)

            def send(self, status: int, body: Any, **headers: str) -> None:
                self.reply(status, body if isinstance(body, bytes) else json.dumps(body).encode(), **headers)

        super().__init__(Answers)
