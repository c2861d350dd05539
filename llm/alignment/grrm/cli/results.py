"""The outputs of results: an atomically written file, a table on a terminal, JSON lines in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from rich.text import Text

from grrm.cli.records import Records
from grrm.data.atomic import atomic_path, json_bytes
from grrm.errors import UserError
from grrm.tracking.console import printable

SUFFIXES = (".jsonl", ".parquet")
Types = Mapping[str, pa.DataType]
Columns = Mapping[str, Sequence[Any]]
Cells = Sequence[str]


@contextmanager
def result_sink(
    out: Path | None, records: Records, types: Types, show: Callable[[Columns], None]
) -> Iterator[Callable[[Columns], None]]:
    """Yield what takes the new columns (of these `types`) once they are there; the input's own stay beside them.

    Without `out` a terminal gets `show(columns)` and a pipe JSON lines. What cannot be written, the path or columns of
    the input that do not fit the format, is refused on entry, before hours of work. Raises UserError for that, another
    suffix than .jsonl and .parquet, or new columns that would replace the input's.
    """
    clashing = sorted({name for row in records.rows for name in row} & set(types))
    if clashing:
        raise UserError(
            f"{records.origin} has a column {', '.join(clashing)} already; rename it, or give the original file"
        )
    if out is None:
        yield show if sys.stdout.isatty() else lambda columns: _print_lines(_joined(records.rows, columns))
        return
    if out.suffix not in SUFFIXES:
        raise UserError(f"--out {out} must end in {' or '.join(SUFFIXES)}; rename it")
    with atomic_path(out) as temporary:
        if out.suffix == ".parquet":  # the input's own columns may be what cannot be written
            _write_parquet(out, records, {}, {}, temporary)

        def write(columns: Columns) -> None:
            if out.suffix == ".parquet":
                _write_parquet(out, records, columns, types, temporary)
            else:
                with temporary.open("wb") as file:
                    file.writelines(map(json_line, _joined(records.rows, columns)))

        yield write


def json_line(row: Mapping[str, Any]) -> bytes:
    """One line of JSON in UTF-8, escaped where the text holds half a character."""
    return json_bytes(row, default=str)


def show_table(title: str, headers: Sequence[str], rows: Sequence[Cells | None], notes: Sequence[str] = ()) -> None:
    """A table for people; None is a line between rows, and a column whose header ends in ` #` holds numbers.

    Off a terminal it is plain text. Text is shown as it is, never as markup or control characters.
    """
    names = [header.removesuffix(" #") for header in headers]
    if not sys.stdout.isatty():
        _print_plain(title, names, [row for row in rows if row is not None], notes)
        return
    table = Table(title=Text(title), title_justify="left")
    for header, name in zip(headers, names, strict=True):
        table.add_column(name, justify="right" if header.endswith(" #") else "left", overflow="fold")
    for row in rows:
        if row is None:
            table.add_section()
        else:
            table.add_row(*(Text(printable(cell)) for cell in row))
    console = Console()
    console.print(table)
    for note in notes:
        console.print(note, markup=False, highlight=False)


def _print_plain(title: str, names: Sequence[str], rows: Sequence[Cells], notes: Sequence[str]) -> None:
    lines = [names, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
    print(title)
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    for note in notes:
        print(note)


def _joined(rows: Sequence[Mapping[str, Any]], columns: Columns) -> Iterator[dict[str, Any]]:
    for index, row in enumerate(rows):
        yield {**row, **{name: values[index] for name, values in columns.items()}}


def _print_lines(rows: Iterator[Mapping[str, Any]]) -> None:
    for row in rows:
        sys.stdout.buffer.write(json_line(row))
    sys.stdout.buffer.flush()


def _write_parquet(out: Path, records: Records, columns: Columns, types: Types, temporary: Path) -> None:
    try:
        pq.write_table(_table(out, records, columns, types), temporary)
    except pa.ArrowException as error:  # a column of empty objects, for one
        raise UserError(f"{records.origin} cannot be written to {out} ({error}); write a .jsonl file") from error


def _table(out: Path, records: Records, columns: Columns, types: Types) -> pa.Table:
    input_types = {} if records.schema is None else {field.name: field.type for field in records.schema}
    values = {
        name: [row.get(name) for row in records.rows] for name in dict.fromkeys(n for r in records.rows for n in r)
    }
    arrays = {}
    for name, column in {**values, **columns}.items():
        try:
            arrays[name] = pa.array(column, types.get(name, input_types.get(name)))
        except (pa.ArrowException, UnicodeEncodeError, OverflowError, TypeError) as error:
            raise UserError(f"column {name} cannot be written to {out} as one type; write a .jsonl file") from error
    return pa.table(arrays)
