"""The table as which every layout is opened: named columns, and a stream of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from grrm.errors import UserError

Row = dict[str, Any]
MAX_TEXT = 1 << 24  # bytes of a line, characters of a segment: what is longer is no sentence, but a damaged file


class RowError(UserError):
    """A row that cannot be used; `reason` is the fault without the row's number and value, for counting."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class RowTable:
    """The rows of a file, or of several in order.

    `read` yields each row, or the error of one that cannot be read, with at least the columns that are asked for (None:
    all); a row of JSON has only those that its object has. `n_rows` and `schema` are None where the file does not
    say them before it is read.
    """

    name: str
    names: tuple[str, ...]
    read: Callable[[Sequence[str] | None], Iterator[Row | RowError]]
    n_rows: int | None = None
    schema: pa.Schema | None = None


def first_line(error: Exception) -> str:
    """An error of Arrow as part of a sentence."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")
