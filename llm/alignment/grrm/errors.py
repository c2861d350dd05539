"""The errors that are the user's to mend, and the check of names that suggests the nearest one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class UserError(Exception):
    """A mistake the user can mend: bad setting, missing file, wrong column, port in use.

    The message is one sentence that names the thing, the place and the remedy. Entry points print it
    without a traceback and exit with status 2; everything else is a defect and keeps its traceback.
    """


class UserErrors(UserError):
    """Several mistakes in one place, told at once: a line that names the place, and below it a sentence for each."""

    def __init__(self, place: str, sentences: Sequence[str]) -> None:
        self.sentences = tuple(sentences)
        head = f"{place}: " if place else ""
        super().__init__("\n  ".join([f"{head}{len(self.sentences)} mistakes", *self.sentences]))


def nearest_name(name: object, known: Iterable[str], *, cutoff: float = 0.0) -> str | None:
    """The known name most like `name`; None where none is as like as `cutoff` (0 to 1), or nothing is known."""
    found = difflib.get_close_matches(str(name), list(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def require_known(noun: str, name: object, known: Iterable[str]) -> None:
    """Raises UserError for a name that does not exist, with the nearest one that does and all there are."""
    known = list(known)
    if name not in known:
        raise UserError(
            f"unknown {noun} {name!r}: did you mean {nearest_name(name, known)!r}? Known: {', '.join(known)}."
        )
