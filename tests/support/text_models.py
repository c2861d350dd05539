"""Models whose replies a test writes, in the place of a generator of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from grrm.judges.interface import GeneratedText


class TextModel:
    """Replies to a prompt with `reply(prompt)`, a text or all that was generated; one character is one token.

    `calls` has what it was asked for, `prompts` and `seeds` those of all calls.
    """

    def __init__(self, reply: Callable[[str], str | GeneratedText]) -> None:
        self.reply = reply
        self.calls: list[dict[str, Any]] = []
        self.prompts: list[str] = []
        self.seeds: list[int] = []

    def generate_text(self, prompts: Sequence[str], **sampling: Any) -> list[GeneratedText]:
        self.calls.append({"prompts": list(prompts), **sampling})
        self.prompts += prompts
        self.seeds += sampling.get("seeds") or []
        drawn = [self.reply(prompt) for prompt in prompts]
        return [GeneratedText(one, "stop", 1) if isinstance(one, str) else one for one in drawn]

    def count_tokens(self, prompt: str) -> int:
        return len(prompt)


TIMEOUT, UNREACHABLE = (GeneratedText("", reason, 0) for reason in ("timeout", "unreachable"))


def cut_off(text: str) -> GeneratedText:
    """A reply that ends at the length limit."""
    return GeneratedText(text, "length", 1)


def by_source(replies: dict[str, list[Any]]) -> TextModel:
    """Gives the next reply of the first key that occurs in the prompt; the last one is given for ever."""
    left = {key: list(several) for key, several in replies.items()}

    def reply(prompt: str) -> Any:
        script = next(several for key, several in left.items() if key in prompt)
        return script.pop(0) if len(script) > 1 else script[0]

    return TextModel(reply)
