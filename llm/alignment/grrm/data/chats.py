"""Rows of chats: `messages`, each with a role and a content, which the tokenizer's own template turns into a prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from grrm.errors import UserError

MESSAGES = "messages"
Messages = Sequence[Mapping[str, str]]
RenderMessages = Callable[[Messages], str]  # raises ValueError for what the template refuses


def messages_fault(messages: Any, control_tokens: Sequence[str]) -> str | None:
    """Return the reason why a value is no chat that somebody asks in, without control tokens; None where it is."""
    if not isinstance(messages, list) or not all(
        isinstance(message, Mapping)
        and isinstance(message.get("role"), str)
        and isinstance(message.get("content"), str)
        for message in messages
    ):
        return "is not a list of messages with role and content"
    if not any(message["role"] == "user" and message["content"].strip() for message in messages):
        return "has no message of the user"
    if any(token in message[part] for message in messages for part in ("role", "content") for token in control_tokens):
        return "contains a control token of the chat template"
    return None


def chat_texts(
    path: Path, number: int, row: Mapping[str, Any], render: RenderMessages | None
) -> tuple[str, str | None]:
    """The prompt of a row with `messages`, and the content of its last message where that is the assistant's.

    Raises UserError naming file and line for a value that is no chat, or that the template refuses.
    """
    messages: Any = row[MESSAGES]
    if render is None:
        raise UserError(f"{path} line {number} has messages, for which there is no chat template; give src and tgt")
    fault = messages_fault(messages, ())
    if fault is not None:
        raise UserError(f"{path} line {number}: {MESSAGES!r} {fault}; mend or remove the line")
    answer = messages[-1]["content"] if messages[-1]["role"] == "assistant" else None
    try:
        return render(messages if answer is None else messages[:-1]), answer
    except ValueError as error:
        raise UserError(f"{path} line {number}: {MESSAGES!r} {error}; mend or remove the line") from error
