"""Parquet, Arrow and Feather, CSV and TSV: what pyarrow reads in batches."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from grrm.data.layouts.table import MAX_TEXT, Row, RowError, RowTable
from grrm.data.layouts.text_files import open_binary
from grrm.errors import UserError, first_line

ROWS_PER_BATCH = 8192
_SHOWN = 5
_IN_OTHER_BYTES = re.compile(r"utf-?8", re.IGNORECASE)
_OTHER_DELIMITERS = ";\t"  # of CSV: spreadsheets write them where the comma is the decimal point
_NAMES_DELIMITER = "sep="
_QUOTED = r'^"([^"]|"")*""([^"]|"")*"$'


@contextmanager
def arrow_errors(path: Path) -> Iterator[None]:
    """Turn errors of pyarrow into sentences for the user."""
    try:
        yield
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; give the path of a file") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        remedy = "save it as UTF-8" if _IN_OTHER_BYTES.search(str(error)) else "get the file again"
        raise UserError(f"{path} cannot be read to its end ({first_line(error)}); {remedy}") from error


def open_parquet(path: Path) -> pq.ParquetFile:
    """The opened file. Raises UserError when it is missing or is not parquet."""
    if not path.is_file():
        raise UserError(f"{path} does not exist; give the path of a parquet file")
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path} is not a readable parquet file ({first_line(error)}); convert it to parquet"
        ) from error


def parquet_table(path: Path) -> RowTable:
    """A parquet file. Errors as in `open_parquet`."""

    def batches(columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        with open_parquet(path) as file:
            yield from file.iter_batches(batch_size=ROWS_PER_BATCH, columns=columns)

    with open_parquet(path) as file:
        return arrow_row_table(path, file.schema_arrow, batches, int(file.metadata.num_rows))


def arrow_table(path: Path) -> RowTable:
    """A file or a stream of Arrow, Feather being one. Raises UserError for any other."""

    def batches(columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        with _open_arrow(path) as reader:
            if isinstance(reader, pa.ipc.RecordBatchStreamReader):
                parts: Iterable[pa.RecordBatch] = reader
            else:
                parts = (reader.get_batch(number) for number in range(reader.num_record_batches))
            for part in parts:
                yield part if columns is None else part.select(columns)

    with _open_arrow(path) as reader:
        return arrow_row_table(path, reader.schema, batches)


def csv_table(path: Path, delimiter: str) -> RowTable:
    """A file with a header of column names; every value is text.

    Values of CSV may be quoted and hold line breaks. In TSV each line is a row and quotes are part of the text; a value
    that is quoted as in CSV is an error.

    Rows with too many or too few values are one error at the end of the file. So is a quote that does not end, behind
    which the last value has all further rows, and one with text behind it, as where a backslash escapes quotes.

    CSV whose header has semicolons or tabs and no comma is divided at these. A first line "sep=;" names the delimiter.
    """
    is_csv, n_skipped = delimiter == ",", 0
    invalid: list[tuple[int, int]] = []

    def note(row: pa_csv.InvalidRow) -> str:
        invalid.append((row.number - n_skipped, row.actual_columns))
        return "skip"

    def opened(types: dict[str, pa.DataType] | None) -> pa_csv.CSVStreamingReader:
        invalid.clear()
        return pa_csv.open_csv(
            path,
            pa_csv.ReadOptions(use_threads=False, block_size=MAX_TEXT, skip_rows=n_skipped),
            pa_csv.ParseOptions(
                delimiter=delimiter,
                quote_char='"' if is_csv else False,
                newlines_in_values=is_csv,
                invalid_row_handler=note,
            ),
            pa_csv.ConvertOptions(column_types=types, strings_can_be_null=False),
        )

    def batches(columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        for batch in opened(dict.fromkeys(names, pa.string())):
            if not is_csv and any(
                pc.any(pc.match_substring_regex(values, _QUOTED)).as_py() for values in batch.columns
            ):
                raise UserError(f"{path} has values that are quoted as in CSV; write them without quotes, or as CSV")
            yield batch if columns is None else batch.select(columns)
        if invalid:
            shown = ", ".join(f"row {number - 1} ({count})" for number, count in invalid[:_SHOWN])
            more = f" and {len(invalid) - _SHOWN} more" if len(invalid) > _SHOWN else ""
            remedy = "quote values that contain the delimiter" if is_csv else "values with tabs or line breaks need CSV"
            raise UserError(f"{path} has rows without {len(names)} values: {shown}{more}; {remedy}")
        if is_csv:
            _check_quotes(path, delimiter, is_csv)

    with arrow_errors(path), _long_rows(path, delimiter, is_csv):
        names = opened(None).schema.names
        if is_csv and (other := _other_delimiter(path, names)):
            delimiter, n_skipped = other, int(names[0].startswith(_NAMES_DELIMITER))
            names = opened(None).schema.names

    def located(columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        with _long_rows(path, delimiter, is_csv):
            yield from batches(columns)

    return arrow_row_table(path, pa.schema([(name, pa.string()) for name in names]), located)


def _other_delimiter(path: Path, names: Sequence[str]) -> str | None:
    """The delimiter that the first line of CSV names, or that its header has in place of commas; None without."""
    if names[0].startswith(_NAMES_DELIMITER):
        delimiter = names[0].removeprefix(_NAMES_DELIMITER) or ","
        if len(delimiter) > 1 or not "\0" < delimiter < "\x7f":
            raise UserError(f"{path} names the delimiter {delimiter[:40]!r} in its first line; give an ASCII character")
        return delimiter
    return next((mark for mark in _OTHER_DELIMITERS if len(names) == 1 and mark in names[0]), None)


@contextmanager
def _long_rows(path: Path, delimiter: str, is_csv: bool) -> Iterator[None]:
    """Say where a row is that is longer than a block of pyarrow's, which names neither."""
    try:
        yield
    except pa.ArrowInvalid as error:
        if "straddling object" not in str(error):
            raise
        _check_quotes(path, delimiter, is_csv)
        raise UserError(f"{path} has a row of more than {MAX_TEXT} bytes; shorten or remove it") from error


def _check_quotes(path: Path, delimiter: str, is_csv: bool) -> None:
    """Raises UserError where pyarrow takes rows for one: behind a quote that does not end where a value does.

    So it does for a value of more than `MAX_TEXT` characters.
    """
    csv.field_size_limit(MAX_TEXT)
    n_lines = 0
    with open_binary(path) as file:
        text = io.TextIOWrapper(file, "utf-8-sig", newline="")
        lines = csv.reader(
            text, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if is_csv else csv.QUOTE_NONE, strict=True
        )
        try:
            for _ in lines:
                n_lines = lines.line_num
        except csv.Error as error:
            if "field limit" in str(error):
                raise UserError(
                    f"{path} has a value of more than {MAX_TEXT} characters in line {n_lines + 1}; shorten it, or end "
                    "its quote"
                ) from error
            raise UserError(
                f"{path} has a quote that does not end, or text behind one, up to line {lines.line_num} ({error}); "
                "end it, or double each quote within a value"
            ) from error


def arrow_row_table(
    path: Path,
    schema: pa.Schema,
    batches: Callable[[Sequence[str] | None], Iterator[pa.RecordBatch]],
    n_rows: int | None = None,
) -> RowTable:
    """A table of the rows in `batches`, of the columns asked for, whose errors of pyarrow become sentences.

    Raises UserError where two columns have one name, other than none.
    """
    if twice := [name for name, count in Counter(schema.names).items() if name and count > 1]:
        raise UserError(f"{path} has several columns {', '.join(twice)}; rename or remove all but one")

    def checked(columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        with arrow_errors(path):
            for batch in batches(columns):
                batch.validate(full=True)  # offsets of a damaged file may point anywhere, and texts be no UTF-8
                yield batch

    def rows(columns: Sequence[str] | None) -> Iterator[Row | RowError]:
        for batch in checked(columns):
            yield from batch.to_pylist()

    with arrow_errors(path):
        return RowTable(str(path), tuple(schema.names), rows, n_rows, schema, checked)


def _open_arrow(path: Path) -> pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader:
    with arrow_errors(path):
        try:
            return pa.ipc.open_file(pa.memory_map(str(path)))
        except pa.ArrowInvalid:
            return pa.ipc.open_stream(pa.memory_map(str(path)))
