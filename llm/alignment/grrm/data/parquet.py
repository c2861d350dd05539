"""Parquet files of sentence pairs in the TowerBlocks-MT schema: src_text, trg_text, src_lang, trg_lang."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from grrm.data.atomic import atomic_path
from grrm.errors import UserError

COLUMNS = ("src_text", "trg_text", "src_lang", "trg_lang")
SCHEMA = pa.schema([(name, pa.string()) for name in COLUMNS])
ROWS_PER_BATCH = 8192


class TranslationRow(NamedTuple):
    """One sentence pair; languages are two-letter codes or display names."""

    src_text: str
    trg_text: str
    src_lang: str
    trg_lang: str


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


def count_rows(path: Path, columns: Sequence[str] = COLUMNS, optional: Collection[str] = ()) -> int:
    """Number of rows in the file, from its footer. Raises UserError like `iter_raw_rows`, but accepts an empty file."""
    with _open(path, columns, optional) as file:
        return int(file.metadata.num_rows)


def iter_raw_rows(
    path: Path, columns: Sequence[str] = COLUMNS, optional: Collection[str] = ()
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Stream `(row_number, values in the order of columns)`, row numbers from 1, values as they are (maybe None).

    An `optional` column that is not there is None in every row. Raises UserError, one sentence, when the file is
    missing, is not parquet, lacks a column or has no rows.
    """
    with _open(path, columns, optional) as file:
        number = 0
        there = [name for name in columns if name in file.schema_arrow.names]
        for batch in file.iter_batches(batch_size=ROWS_PER_BATCH, columns=there):
            values_of = [
                batch.column(name).to_pylist() if name in there else [None] * batch.num_rows for name in columns
            ]
            for values in zip(*values_of, strict=True):
                number += 1
                yield number, values
    if number == 0:
        raise UserError(f"{path} has no rows; give a parquet file with at least one sentence pair")


def read_rows(path: Path) -> list[TranslationRow]:
    """All rows of a clean file. Raises UserError as `iter_raw_rows` does, and for a value that is not text."""
    rows = []
    for number, values in iter_raw_rows(path):
        for name, value in zip(COLUMNS, values, strict=True):
            if not isinstance(value, str):
                raise UserError(f"{path} row {number}: column {name} holds {value!r}; every value must be text")
        rows.append(TranslationRow(*values))
    return rows


def open_parquet(path: Path, columns: Iterable[str]) -> pq.ParquetFile:
    """The opened file; `columns` only tell the user what it should hold.

    Raises UserError when the file is missing or is not parquet.
    """
    if not path.is_file():
        named = ", ".join(columns)
        raise UserError(f"{path} does not exist; give the path of a parquet file{named and f' with columns {named}'}")
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(
            f"{path} is not a readable parquet file ({_first_line(error)}); convert it to parquet"
        ) from error


def _open(path: Path, columns: Sequence[str] = COLUMNS, optional: Collection[str] = ()) -> pq.ParquetFile:
    file = open_parquet(path, columns)
    found = file.schema_arrow.names
    missing = [name for name in columns if name not in found and name not in optional]
    if missing:
        file.close()
        raise UserError(
            f"{path} lacks column {', '.join(missing)} (found: {', '.join(found) or 'none'}); "
            f"rename its columns to {', '.join(columns)}"
        )
    return file


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")
