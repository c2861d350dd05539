"""Text from OpenAI-compatible servers (FastDeploy, vLLM, SGLang …); several URLs of one model are a pool."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from grrm.engine.openai_wire import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    WHICH_MODEL,
    CompletionCall,
    completions_client,
    read_chat,
    read_completion,
    unanswered_because,
)
from grrm.http_client.client import NoAnswer
from grrm.http_client.exchange import clean_text
from grrm.judges.interface import GeneratedText

logger = logging.getLogger(__name__)


class OpenAITextGenerator:
    """`judges.interface.TextGenerator` over `POST /v1/completions` of one server or a pool of equal ones.

    Prompts go out one per request. A prompt too long for the model is always marked, see `GeneratedText`. No message
    quotes a prompt.

    Args:
        urls: addresses of the servers.
        model: the model's name there; None asks the servers for their first.
        chat: asks `POST /v1/chat/completions`: each prompt is a user's turn, which the server renders.
        stop: strings that end a reply.
        tokenizer: counts tokens of prompts; without it bytes are counted.
        unanswered: "mark" marks a prompt that no server accepted or finished in time, so that the others keep their
            replies; likewise one that a server refuses, unless it refuses all, and one on which it fails or breaks off,
            once any has been answered. "raise" raises NoAnswer.
        remaining_s: asked at every call for a limit tighter than `deadline_s`.
        required_within_s: the first call raises UserError if no server accepts a connection within this time. After a
            call without any answer, prompts are marked at once while no server takes requests.
        settings: those of `HttpClient`, such as `deadline_s`, which bounds a `generate_text` call, retries included.

    Raises:
        UserError: for settings that cannot work.
    """

    def __init__(
        self,
        urls: Sequence[str],
        model: str | None = None,
        *,
        chat: bool = False,
        stop: Sequence[str] = (),
        tokenizer: Any = None,
        unanswered: Literal["raise", "mark"] = "raise",
        remaining_s: Callable[[], float] = lambda: math.inf,
        required_within_s: float | None = None,
        **settings: Any,
    ) -> None:
        self._client, self._marks = completions_client(urls, **settings), unanswered == "mark"
        self._model, self._chat, self._stop, self._tokenizer = model, chat, tuple(stop), tokenizer
        self._remaining_s, self._required_within_s = remaining_s, required_within_s
        self._has_answered = False
        self._last_answered: bool | None = None  # whether the last call had an answer; None before the first

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()

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
        """One reply per prompt, order kept. Without `seeds` the servers draw as they like.

        Every reply was sent by a server for that very prompt. Raises NoAnswer when some prompt got none
        within the attempts and the deadline (or marks it, see above), and ValueError when `seeds` and `prompts` differ
        in length. A chat has no `top_logprobs`.
        """
        if seeds is not None and len(seeds) != len(prompts):
            raise ValueError(f"{len(seeds)} seeds for {len(prompts)} prompts")
        if not prompts:
            return []
        if self._required_within_s is not None:
            if self._last_answered is None:
                self._client.require_any(min(self._required_within_s, self._client.deadline_s))
            elif self._marks and not self._last_answered and not self._client.takes_requests():
                return [GeneratedText("", "unreachable", 0)] * len(prompts)  # nobody waits for each batch anew
            self._last_answered = False
        deadline = time.monotonic() + min(self._client.deadline_s, self._remaining_s())
        if self._model is None:
            (answer,) = self._client.try_all([WHICH_MODEL], deadline, self._is_marked)
            if isinstance(answer, NoAnswer):
                if unanswered_because(answer) in ("refused", "failed"):
                    raise answer
                return _with_marks([answer] * len(prompts))
            self._model = answer
        fields = {
            "model": self._model,
            "n": 1,
            "temperature": temperature,
            "top_p": top_p,
            "max_tokens": max_new_tokens,
        }
        fields |= {"stop": self._stop} if self._stop else {}
        fields |= {"logprobs": top_logprobs} if top_logprobs else {}
        seeded = [fields] * len(prompts) if seeds is None else [fields | {"seed": seed} for seed in seeds]
        calls = [self._call(index, prompt, seeded[index]) for index, prompt in enumerate(prompts)]
        answers = self._client.try_all(calls, deadline, self._is_marked)
        self._check_server([answer for answer in answers if isinstance(answer, NoAnswer)], len(prompts))
        return _with_marks(answers)

    def _call(self, index: int, prompt: str, fields: Mapping[str, Any]) -> CompletionCall[GeneratedText]:
        """The request about prompt `index`."""

        def read(content: bytes, server: str) -> GeneratedText:
            return read_chat(content) if self._chat else read_completion(content, with_choices="logprobs" in fields)

        text = clean_text(prompt)
        own = {"messages": [{"role": "user", "content": text}]} if self._chat else {"prompt": text}
        path = CHAT_PATH if self._chat else COMPLETIONS_PATH
        return CompletionCall(f"prompt {index}", path, json.dumps({**fields, **own}).encode(), read)

    def _check_server(self, failures: Sequence[NoAnswer], n_prompts: int) -> None:
        """Raise the first of `failures` where the request or the server is wrong, and not a prompt."""
        self._last_answered = len(failures) < n_prompts
        self._has_answered |= self._last_answered
        refused, failed = (
            [failure for failure in failures if unanswered_because(failure) == why] for why in ("refused", "failed")
        )
        if 1 < len(refused) == n_prompts:
            raise refused[0]
        if failed and not self._has_answered:
            raise failed[0]

    def _is_marked(self, error: NoAnswer) -> bool:
        reason = unanswered_because(error)
        return reason == "too_long" or (self._marks and reason is not None)

    def count_tokens(self, prompt: str) -> int:
        """Length of `prompt` in tokens; without a tokenizer in UTF-8 bytes, which no byte-level tokenizer exceeds."""
        if self._tokenizer is None:
            return len(prompt.encode("utf-8", "surrogatepass"))
        return len(self._tokenizer(prompt, add_special_tokens=False)["input_ids"])


def _with_marks(answers: Sequence[GeneratedText | NoAnswer]) -> list[GeneratedText]:
    """The replies, and in the place of each failure its mark; the log names the first failure."""
    failures = [answer for answer in answers if isinstance(answer, NoAnswer)]
    if failures:
        logger.warning("%d of %d prompts without a reply, first: %s", len(failures), len(answers), failures[0])
    return [GeneratedText("", _mark(answer), 0) if isinstance(answer, NoAnswer) else answer for answer in answers]


def _mark(error: NoAnswer) -> str:
    reason = unanswered_because(error)
    return "unreachable" if reason in ("refused", "failed", None) else str(reason)
