"""What was wrong with a message or a file of settings, in a few words and without the offending text."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

MANY_ERRORS = 100


def pointer(location: Sequence[int | str]) -> str:
    """`("groups", 0, "source")` as `groups[0].source`; the empty location as the empty string."""
    parts = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in location]
    return "".join(parts).removeprefix(".")


def first_error(error: ValidationError) -> tuple[str, str, str]:
    """Type, pointer and message of the first of a model's errors, without the offending text itself.

    Pydantic spells out all of them or none: where there are many, they are counted instead and have no pointer.
    """
    if error.error_count() > MANY_ERRORS:
        return "many_errors", "", f"{error.error_count()} fields are wrong or unknown"
    detail = error.errors(include_input=False, include_url=False)[0]
    return detail["type"], pointer(detail["loc"]), detail["msg"].removeprefix("Value error, ")
