"""Rows of sentence pairs in the TowerBlocks-MT schema: read from any layout, written as parquet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from grrm.data.atomic import atomic_path
from grrm.data.layouts.arrow_files import ROWS_PER_BATCH
from grrm.data.layouts.table import RowError
from grrm.data.layouts.user_rows import COLUMNS, UserRows, opened
from grrm.errors import UserError

SCHEMA = pa.schema([(name, pa.string()) for name in COLUMNS])


class TranslationRow(NamedTuple):
    """One sentence pair; languages are two-letter codes or display names."""

    src_text: str
    trg_text: str
    src_lang: str
    trg_lang: str


def check_parquet(out: Path, noun: str) -> None:
    """Raises UserError for an output that does not end with .parquet; `noun` says what it has, such as "pairs"."""
    if out.suffix != ".parquet":
        raise UserError(f"{out} does not end with .parquet; {noun} are written as parquet only")


def write_rows(path: Path, rows: Iterable[tuple[Any, ...]], schema: pa.Schema = SCHEMA) -> int:
    """Write `rows`, values in the order of `schema`, to `path` in one atomic step, streaming; returns how many.

    Zero rows give a valid empty file.
    """
    written = 0
    iterator = iter(rows)
    with atomic_path(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        while batch := list(islice(iterator, ROWS_PER_BATCH)):
            columns = zip(zip(*batch, strict=True), schema.types, strict=True)
            arrays = [pa.array(values, kind) for values, kind in columns]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            written += len(batch)
    return written


def count_rows(rows: Path | UserRows, columns: Sequence[str] = COLUMNS, optional: Collection[str] = ()) -> int | None:
    """Number of rows, None where the file does not say it. Raises UserError as `iter_raw_rows`, except for no rows."""
    return opened(rows).under(columns, optional).n_rows


def iter_raw_rows(
    rows: Path | UserRows, columns: Sequence[str] = COLUMNS, optional: Collection[str] = ()
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Stream `(row_number, values in the order of columns)`, row numbers from 1, values as they are (maybe None).

    An `optional` column that is not there is None in every row. Raises UserError, one sentence, when the file is
    missing, cannot be read, lacks a column or has no rows, and for a row that cannot be read.
    """
    for number, values in iter_rows(rows, columns, optional):
        if isinstance(values, RowError):
            raise values
        yield number, values


def iter_rows(
    rows: Path | UserRows, columns: Sequence[str] = COLUMNS, optional: Collection[str] = ()
) -> Iterator[tuple[int, tuple[Any, ...] | RowError]]:
    """As `iter_raw_rows`, with the error of a row that cannot be read in place of its values."""
    number = 0
    for number, values in enumerate(opened(rows).under(columns, optional).values(), start=1):
        yield number, values
    if number == 0:
        raise UserError(f"{opened(rows).path} has no rows; give a file with at least one sentence pair")


def read_rows(path: Path) -> list[TranslationRow]:
    """All rows of a clean file. Raises UserError as `iter_raw_rows` does, and for a value that is not text."""
    rows = []
    for number, values in iter_raw_rows(path):
        for name, value in zip(COLUMNS, values, strict=True):
            if not isinstance(value, str):
                raise UserError(f"{path} row {number}: column {name} holds {value!r}; every value must be text")
        rows.append(TranslationRow(*values))
    return rows
