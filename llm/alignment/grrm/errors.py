"""The errors that are the user's to mend: what is wrong with a file or a message, and which name is the nearest."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError

_ALIKE = 0.7  # share of letters in common, 0 to 1, from which a name counts as a misspelling of another
MANY_ERRORS = 100


class UserError(Exception):
    """A mistake the user can mend: bad setting, missing file, wrong column, port in use.

    The message is one sentence that names the thing, the place and the remedy. Entry points print it
    without a traceback and exit with status 2; everything else is a defect and keeps its traceback.
    """


class UserErrors(UserError):
    """Several mistakes at one `location`, reported together: a headline, and below it a sentence for each."""

    def __init__(self, location: str, sentences: Sequence[str]) -> None:
        self.sentences = tuple(sentences)
        head = f"{location}: " if location else ""
        super().__init__("\n  ".join([f"{head}{len(self.sentences)} mistakes", *self.sentences]))


def mistake_in(check: Callable[..., object], *arguments: Any) -> str | None:
    """The sentence of the UserError that `check` raises of these arguments; None where it raises none."""
    try:
        check(*arguments)
    except UserError as error:
        return str(error)
    return None


def first_line(error: BaseException) -> str:
    """An error of a library as part of a sentence."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")


def nearest_name(name: object, choices: Iterable[str]) -> str | None:
    """The choice that `name` is like a misspelling or the beginning of; None without one."""
    choices, text = list(choices), str(name)
    alike = difflib.get_close_matches(text, choices, n=1, cutoff=_ALIKE)
    begun = [other for other in choices if text and other.startswith(text)]
    return next(iter([*alike, *sorted(begun, key=len)]), None)


def suggestion(name: object, choices: Iterable[str]) -> str:
    """The remedy for an unknown name: the nearest choice, or all of them if none is near."""
    near = nearest_name(name, choices := list(choices))
    return f"give one of {', '.join(choices)}." if near is None else f"did you mean {near!r}?"


def require_known(noun: str, name: object, choices: Iterable[str]) -> None:
    """Raises UserError for a name that does not exist, with the nearest one that does, if any, and all there are."""
    if name not in (choices := list(choices)):
        near = nearest_name(name, choices)
        listed = f" Known: {', '.join(choices)}." if near else ""
        raise UserError(f"unknown {noun} {name!r}: {suggestion(name, choices)}{listed}")


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
