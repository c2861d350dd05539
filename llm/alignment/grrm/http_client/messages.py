"""Common parts of all our protocols: the deadline of a request, texts that can be sent, and checked answers."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from grrm.errors import first_error

Message = TypeVar("Message", bound=BaseModel)
DEADLINE_HEADER = "X-Deadline-Seconds"  # how long after its arrival a request's answer is still of use


class AnswerError(Exception):
    """The server's answer does not fit the request; the message says where."""


def parse_answer(model: type[Message], content: bytes, what: str = "answer") -> Message:
    """`content` as a message of this model. Raises AnswerError, which quotes no text."""
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        _, field, message = first_error(error)
        raise AnswerError(f"the {what} is malformed at {field or 'its top level'}: {message}") from error


def single_line(text: str) -> str:
    """The first 300 characters of what a server says, on one line."""
    return " ".join(text.split())[:300]


def clean_text(text: str) -> str:
    """`text` with lone surrogates, which no JSON parser of ours accepts, replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
