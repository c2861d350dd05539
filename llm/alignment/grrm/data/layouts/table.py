"""The table as which every layout is opened: named columns, and a stream of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from grrm.errors import UserError, first_line

Row = dict[str, Any]
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
MAX_TEXT = 1 << 24  # bytes of a line, characters of a segment: what is longer is no sentence, but a damaged file


class RowError(UserError):
    """A row that cannot be used; `reason` is the fault without the row's number and value, for counting."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def counted(reasons: Counter[str]) -> str:
    """The reasons in a line, the most frequent first, each with its number of rows; empty without any."""
    return ", ".join(f"{count} x {reason}" for reason, count in reasons.most_common())


@dataclass(frozen=True, slots=True)
class RowTable:
    """The rows of a file, or of several in order.

    `read` yields each row, or the error of one that cannot be read, with at least the columns that are asked for (None:
    all); a row of JSON has only those that its object has.

    `n_rows` and `schema` are None where the file does not say them before it is read, and `batches`, the rows as Arrow
    has them, where Arrow does not read it.
    """

    name: str
    names: tuple[str, ...]
    read: Callable[[Sequence[str] | None], Iterator[Row | RowError]]
    n_rows: int | None = None
    schema: pa.Schema | None = None
    batches: Callable[[Sequence[str] | None], Iterator[pa.RecordBatch]] | None = None


def sound_rows(table: RowTable, columns: Sequence[str] | None = None) -> Iterator[Row]:
    """The rows of the table. Raises RowError for the first that cannot be read."""
    for row in table.read(columns):
        if isinstance(row, RowError):
            raise row
        yield row


def in_batches(table: RowTable, columns: Collection[str], rows_per_batch: int) -> RowTable:
    """The table with `n_rows`, `schema` and `batches`; read whole for it where it has none, those of `columns` only.

    Raises RowError for the first row that cannot be read, and UserError for values of a column without one type.
    """
    if table.n_rows is not None and table.schema is not None and table.batches is not None:
        return table
    cells: dict[str, list[Any]] = {name: [] for name in table.names if name in columns}
    n_rows = 0
    for row in sound_rows(table, list(cells)):
        n_rows += 1
        for name, of_column in cells.items():
            of_column.append(row.get(name))
    arrays = {}
    for name, of_column in cells.items():
        try:
            arrays[name] = pa.array(of_column)
        except (pa.ArrowException, UnicodeEncodeError, OverflowError) as error:
            odd = _odd_row(of_column)
            where = f"; look at row {odd}" if odd else "; mend it"
            raise UserError(f"{table.name} has no one type in column {name} ({first_line(error)}){where}") from error
    values = pa.table(arrays)

    def batches(columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        yield from (values if columns is None else values.select(columns)).to_batches(rows_per_batch)

    return replace(table, n_rows=n_rows, schema=values.schema, batches=batches)


def _odd_row(values: Sequence[Any]) -> int | None:
    """The number, from 1, of the first value of another kind than the first; None where only their items differ."""
    kinds = [float if type(value) is int else type(value) for value in values]
    usual = next((kind for kind in kinds if kind is not type(None)), None)
    return next((row for row, kind in enumerate(kinds, 1) if kind not in (usual, type(None))), None)


def ending_of(path: Path) -> str:
    """The ending that says the layout: `.csv` of rows.csv.gz."""
    return (Path(path.stem) if path.suffix in _COMPRESSED else path).suffix.lower()
