"""Rows of the files that commands read: lines of text, or any layout of rows; every bad row named by its number."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import click
import pyarrow as pa
from pydantic import ConfigDict, Field, NonNegativeInt, TypeAdapter

from grrm.data.layouts.opening import ENDINGS, open_table
from grrm.data.layouts.table import Row, RowError, counted, ending_of
from grrm.data.layouts.text_files import STDIN, lines_of
from grrm.errors import UserError, mistake_in
from grrm.gqm.languages import display_name

logger = logging.getLogger(__name__)
_ADVICE = re.compile(r"[,;]| \(")  # what a value must be ends here, how to get it begins
_SHOWN_COLUMNS, _SHOWN_ROWS = 8, 10
T = TypeVar("T")
ReadLine = Callable[[str], Row]  # raises ValueError that says what is wrong with the line


@dataclass(frozen=True, slots=True)
class Records:
    """Rows by column, the name of where they are from, and the columns' types where the file says them.

    `broken` has the fault of each line (from 1) that could not be read; its row is empty, and no cell can be taken.
    """

    origin: str
    rows: list[Row]
    schema: pa.Schema | None = None
    broken: Mapping[int, RowError] = field(default_factory=dict)
    is_text: bool = False  # of lines of text, where a blank one keeps the place of its neighbours

    def column(self, name: str, check: Callable[[Any], T], expected: str) -> list[T]:
        """Every row's value of `name`; see `cell`."""
        return [self.cell(number, name, check, expected) for number in range(1, len(self.rows) + 1)]

    def cell(self, number: int, name: str, check: Callable[[Any], T], expected: str) -> T:
        """The value of `name` in a row (from 1), as `check` returns it.

        `check` raises ValueError on a value it refuses, and gets None where the row has none; `expected` says what the
        user should put there. Raises RowError that names the origin, the row and the column.
        """
        if number in self.broken:
            raise self.broken[number]
        row = self.rows[number - 1]
        try:
            return check(row.get(name))
        except ValueError as error:
            held = f"holds {_shortened(row[name])}" if name in row else "is missing"
            others = "" if name in row or self.is_text else _named(name, row)
            raise RowError(
                f"{self.origin} row {number}: column {name} {held}; it must be {expected}{others}",
                f"{name} is not {_ADVICE.split(expected)[0]}" if name in row else f"{name} is missing",
            ) from error


def _named(name: str, row: Row) -> str:
    """The columns that a row has instead of `name`, and of a text how it is named as ours."""
    remedy = "; rename them with `grrm data convert --to rows`" if name in ("src_text", "trg_text") else ""
    return f" (columns: {', '.join([*row][:_SHOWN_COLUMNS])}{remedy})" if row else ""


def read_records(path: Path, read_line: ReadLine | None = None) -> Records:
    """The rows of a file in any layout, or with `read_line` of a text file, `-` being standard input.

    With `read_line` a .tsv file is text too. A row that cannot be read, is empty, or is refused by `read_line` is a row
    of which no cell can be taken. Raises UserError when the file is missing, cannot be read, or has no rows.
    """
    if read_line is not None and (ending_of(path) not in ENDINGS or ending_of(path) == ".tsv"):
        origin = "standard input" if path == STDIN else str(path)
        records = _read_text(origin, read_line, lines_of(path))
    else:
        table = open_table(path)
        rows = list(table.read(None))
        broken = {number: row for number, row in enumerate(rows, start=1) if isinstance(row, RowError)}
        records = Records(
            table.name, [{} if isinstance(row, RowError) else row for row in rows], table.schema, broken=broken
        )
    if not records.rows:
        raise UserError(f"{records.origin} has no rows; give at least one")
    return records


Cell = tuple[str, Callable[[Any], Any], str]  # a column, and as in `Records.cell` its check and what it must be


@dataclass(frozen=True, slots=True)
class Usable:
    """The rows that can be used, their numbers (from 1) among all, and why which number of others cannot."""

    records: Records
    numbers: list[int]
    reasons: Counter[str]


def usable_rows(records: Records, cells: Sequence[Cell], becomes: str = "left out") -> Usable:
    """The rows of which all `cells` can be used; what each other `becomes`, and why, is logged as `sort_out` does.

    Raises RowError, the first, where no row is left.
    """
    sound, reasons = sort_out(records, lambda number: [records.cell(number, *cell) for cell in cells], becomes)
    rows = [records.rows[number - 1] for number in sound]
    return Usable(replace(records, rows=rows, broken={}), list(sound), reasons)


def tell_usable_rows(records: Records, cells: Sequence[Cell], becomes: str = "left out") -> Usable:
    """As `usable_rows`, with a line on stderr of how many other rows there are, and why."""
    usable = usable_rows(records, cells, becomes)
    if usable.reasons:
        n_rows, reasons = usable.reasons.total(), counted(usable.reasons)
        click.echo(f"{records.origin}: {n_rows} rows {becomes} ({reasons})", err=True)
    return usable


def sort_out(
    records: Records, read: Callable[[int], T], becomes: str = "left out"
) -> tuple[dict[int, T], Counter[str]]:
    """Return what `read` makes of each row by its number (from 1), and why which number of others cannot be used.

    `read` raises RowError for these, which is logged: of one reason the first, and the numbers of others. Raises the
    first, where no row is left.
    """
    sound: dict[int, T] = {}
    faults: dict[str, list[int]] = {}
    firsts: list[RowError] = []
    for number in range(1, len(records.rows) + 1):
        try:
            sound[number] = read(number)
        except RowError as error:
            if error.reason not in faults:
                firsts.append(error)
            faults.setdefault(error.reason, []).append(number)
    if not sound:
        raise firsts[0]
    for first in firsts:
        others = faults[first.reason][1:]
        listed = ", ".join(map(str, others[:_SHOWN_ROWS])) + (", …" if len(others) > _SHOWN_ROWS else "")
        logger.warning("%s: %s%s", becomes, first, f" (and {len(others)} more: {listed})" if others else "")
    return sound, Counter({reason: len(numbers) for reason, numbers in faults.items()})


def languages(records: Records, name: str, override: str | None) -> list[str]:
    """The language of each row: the one given on the command line, else the column's.

    The rows are changed to say it, so that results carry the languages that were used. Raises UserError for a row
    without one, or one that has no name.
    """
    expected = f"a language (or give --{name.replace('_', '-')})"
    values = [override] * len(records.rows) if override else records.column(name, text, expected)
    for language in dict.fromkeys(values):
        display_name(language)
    for row, language in zip(records.rows, values, strict=True):
        row[name] = language
    return values


def text(value: Any) -> str:
    """`value` if it is text that is not blank; ValueError else."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value


def language(value: Any) -> str:
    """`value` if it is a language's code or name; ValueError else."""
    if mistake_in(display_name, text(value)):
        raise ValueError
    return str(value)


def text_or_none(value: Any) -> str | None:
    """`value` if it is text or None; ValueError else."""
    if value is not None and not isinstance(value, str):
        raise ValueError
    return value


def texts(value: Any) -> list[str | None]:
    """`value` if it is a list of texts, None standing for one that is missing; ValueError else."""
    return [text_or_none(item) for item in _list(value)]


def names(value: Any) -> list[str]:
    """`value` if it is a list of different texts, none of them blank; ValueError else."""
    if len({text(item) for item in _list(value)}) < len(value):
        raise ValueError
    return _list(value)


def optional(check: Callable[[Any], T]) -> Callable[[Any], T | None]:
    """`check`, except that None stays None."""
    return lambda value: None if value is None else check(value)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError
    return value


_STRICT = ConfigDict(strict=True)
_SCORES = list[Annotated[float, Field(allow_inf_nan=False)] | None]
# Of a list of finite numbers, None standing for one that is missing, of lists of these, and of a whole number.
scores = TypeAdapter[list[float | None]](_SCORES, config=_STRICT).validate_python
lists_of_scores = TypeAdapter[list[list[float | None]]](list[_SCORES], config=_STRICT).validate_python
count = TypeAdapter[int](NonNegativeInt, config=_STRICT).validate_python


def _read_text(origin: str, read_line: ReadLine, lines: Iterator[tuple[int, str]]) -> Records:
    rows: list[Row] = []
    broken: dict[int, RowError] = {}
    for number, line in lines:
        row: Row = {}
        try:
            if not line.strip():
                raise ValueError("is empty; give a text")
            row = read_line(line)
        except ValueError as error:
            broken[number] = RowError(f"{origin} line {number} {error}", f"the line {_ADVICE.split(str(error))[0]}")
        rows.append(row)
    return Records(origin, rows, broken=broken, is_text=True)


def _shortened(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def check_lengths(records: Records, number: int, name: str, lists: Sequence[Sequence[Any]]) -> None:
    """Raises RowError if the lists of a row (from 1) differ in length; `name` says which lists."""
    if len({len(items) for items in lists}) > 1:
        counts = " and ".join(str(len(items)) for items in lists)
        raise RowError(
            f"{records.origin} row {number}: {name} have {counts} entries; they must be as many",
            f"{name} differ in length",
        )
