"""The usable rows of a file as one table, and the reasons why the others are left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress, count, islice
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm

from grrm.data.convert import RejectedRow, log_rejected
from grrm.data.documents import Context, file_contexts
from grrm.data.layouts.arrow_files import ROWS_PER_BATCH
from grrm.data.layouts.opening import open_table
from grrm.data.layouts.table import RowTable, in_batches
from grrm.errors import UserError, mistake_in
from grrm.gqm.chat import CONTROL_TOKENS
from grrm.gqm.context import context_texts
from grrm.gqm.fences import FENCED, UnsafeReason
from grrm.gqm.languages import display_name

# A reference is text, and null where it is empty or the whole column is missing.
Kind = Literal["text", "text or empty", "reference", "language", "texts", "numbers"]
RowFaults = Callable[[pa.Table], "Iterable[str | None]"]  # for each row of a batch a reason to leave it out, or None

TASK: Mapping[str, Kind] = {"src_text": "text", "src_lang": "language", "trg_lang": "language"}
_CONTROL_TOKEN = "|".join(map(re.escape, CONTROL_TOKENS))


@dataclass(frozen=True)
class Intake:
    """The usable rows in the file's order, texts as large_string in one chunk per column, and the rejected rows."""

    table: pa.Table
    rejected: tuple[RejectedRow, ...]

    def numbers(self) -> list[int]:
        """The number in the file, from 1, of each usable row."""
        rejected = {row.row for row in self.rejected}
        usable = (number for number in count(1) if number not in rejected)
        return list(islice(usable, self.table.num_rows))


def with_contexts(intake: Intake, path: Path, n_segments: int) -> tuple[Intake, list[Context | None]]:
    """The rows whose context a judge can be shown, and that context; without `n_segments` all rows, with None each.

    The context is that of all rows of the file, usable or not. Raises UserError as `file_contexts` does, and where no
    row is left.
    """
    if not n_segments:
        return intake, [None] * intake.table.num_rows
    of_file = file_contexts(path, n_segments)
    contexts = [of_file[number - 1] for number in intake.numbers()]
    reasons = [unsafe_reason(context_texts(context)) for context in contexts]
    are_shown = [reason is None for reason in reasons]
    return without_unsafe(intake, path, reasons, "a segment before it"), list(compress(contexts, are_shown))


@lru_cache(maxsize=1 << 18)  # a text is in many rows, and takes 0.1 ms
def _shown(text: str) -> tuple[str, UnsafeReason | None]:
    return FENCED.escape(text), FENCED.unsafe_reason(text)


def escape(text: str) -> str:
    """`FENCED.escape`, with a memory."""
    return _shown(text)[0]


def unsafe_reason(texts: Iterable[str]) -> UnsafeReason | None:
    """The reason for which a judge is not shown the first of the texts that it is not shown; None where it is all."""
    return next((reason for text in texts if (reason := _shown(text)[1])), None)


def without_unsafe(
    intake: Intake, path: Path, reasons: Iterable[UnsafeReason | None], what: str = "a text of it"
) -> Intake:
    """The rows without a reason for which a judge is not shown them. Raises UserError where no row is left."""
    reasons = list(reasons)
    unsafe = [
        RejectedRow(number, f"{what} cannot be shown to a judge: {reason.value}")
        for number, reason in zip(intake.numbers(), reasons, strict=True)
        if reason is not None
    ]
    if not unsafe:
        return intake
    log_rejected(path, unsafe)
    rejected = sorted((*intake.rejected, *unsafe), key=lambda row: row.row)
    if len(unsafe) == len(reasons):
        raise _no_usable_row(path, rejected)
    return Intake(intake.table.filter(pa.array([reason is None for reason in reasons])), tuple(rejected))


def add_keys(task: Mapping[str, Kind], *keys: tuple[str, Kind]) -> dict[str, Kind]:
    """The columns of a task and those that the user names. Raises UserError where two are the same."""
    kinds = {**task, **dict(keys)}
    if len(kinds) < len(task) + len(keys):
        names = ", ".join(name for name, _ in keys)
        raise UserError(f"keys {names} must name different columns beside {', '.join(task)}")
    return kinds


def read_usable(path: Path, kinds: Mapping[str, Kind], row_faults: RowFaults | None = None) -> Intake:
    """Read the columns of `kinds` and keep the rows without fault.

    A fault is a null, an empty text (where the kind does not allow it), a control token of the chat template, an
    unknown language code, or whatever reason `row_faults` gives, which sees the rows with other faults too. Each is
    logged with its row number, from 1. Memory: the columns once, and briefly twice while their chunks are joined.

    Raises UserError when the file is missing, cannot be read, lacks a column or has one of another type, or has no
    usable row.
    """
    rejected: list[RejectedRow] = []
    usable = list(_usable_batches(_opened(path, kinds), kinds, row_faults, rejected))
    log_rejected(path, rejected)
    if not any(table.num_rows for table in usable):
        raise _no_usable_row(path, rejected)
    return Intake(pa.concat_tables(usable).combine_chunks(), tuple(rejected))


def _no_usable_row(path: Path, rejected: Sequence[RejectedRow]) -> UserError:
    why = f", the first is left out because of: {rejected[0].reason}" if rejected else ""
    return UserError(f"{path} has no usable row{why}; mend the file")


def _usable_batches(
    rows: RowTable,
    kinds: Mapping[str, Kind],
    row_faults: RowFaults | None,
    rejected: list[RejectedRow],
) -> Iterator[pa.Table]:
    first = 1
    with tqdm(total=rows.n_rows, desc=f"read {Path(rows.name).name}", unit="row", disable=None) as progress:
        there = [name for name in kinds if name in rows.names]
        for batch in rows.batches(there) if rows.batches else ():
            table = pa.Table.from_batches([batch])
            for name in kinds.keys() - there:
                table = table.append_column(name, pa.nulls(batch.num_rows))
            table = table.select(list(kinds))
            table = table.cast(pa.schema([(name, _wide(table.schema.field(name).type, kinds[name])) for name in kinds]))
            faults = _faults(table, kinds, row_faults)
            rejected.extend(RejectedRow(first + at, faults[at]) for at in sorted(faults))
            if faults:
                table = table.filter(pa.array([at not in faults for at in range(table.num_rows)]))
            yield table
            first += batch.num_rows
            progress.update(batch.num_rows)


def _faults(table: pa.Table, kinds: Mapping[str, Kind], row_faults: RowFaults | None) -> dict[int, str]:
    """Position in the batch -> the first reason to leave the row out."""
    faults: dict[int, str] = {}
    for name, kind in kinds.items():
        column = table.column(name).combine_chunks()
        for reason, mask in _column_faults(name, kind, column):
            for at in pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist():
                faults.setdefault(at, reason)
    if row_faults is not None:
        for at, complaint in enumerate(row_faults(table)):
            if complaint is not None:
                faults.setdefault(at, complaint)
    return faults


def _column_faults(name: str, kind: Kind, column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Reasons and the rows they apply to; null in a mask means no."""
    if kind in ("texts", "numbers"):
        yield f"{name} is not a list of {kind}", pc.is_null(column)
        values, rows = column.flatten(), pc.list_parent_indices(column)
        for reason, mask in _value_faults(name, kind, values):
            yield (
                reason,
                pc.is_in(pa.array(range(len(column)), rows.type), rows.filter(mask, null_selection_behavior="drop")),
            )
        return
    if kind != "reference":
        yield f"{name} is not text", pc.is_null(column)
    if kind not in ("text or empty", "reference"):
        yield f"{name} is empty", pc.equal(pc.utf8_trim_whitespace(column), "")
    yield f"{name} contains a control token of the chat template", pc.match_substring_regex(column, _CONTROL_TOKEN)
    if kind == "language":
        for language in pc.unique(column).drop_null().to_pylist():
            complaint = _unknown_language(language)
            if complaint is not None:
                yield f"{name}: {complaint}", pc.equal(column, language)


def _value_faults(name: str, kind: Kind, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    noun = kind.removesuffix("s")
    yield f"{name} holds a value that is not a {noun}", pc.is_null(values, nan_is_null=True)
    if kind == "texts":
        yield f"{name} contains a control token of the chat template", pc.match_substring_regex(values, _CONTROL_TOKEN)


def _unknown_language(language: str) -> str | None:
    if not language.isprintable():
        return f"{language!r} is not the name of a language"
    complaint = mistake_in(display_name, language)
    return complaint and complaint.rstrip(".")


def _wide(column_type: pa.DataType, kind: Kind) -> pa.DataType:
    """The type a column is held in: 64-bit offsets, because a joined column may exceed 2 GiB of text.

    Half floats become single ones: pyarrow computes nothing with them.
    """
    if kind == "numbers":
        return pa.list_(pa.float32()) if pa.types.is_float16(column_type.value_type) else column_type
    return pa.list_(pa.large_string()) if kind == "texts" else pa.large_string()


def _opened(path: Path, kinds: Mapping[str, Kind]) -> RowTable:
    rows = in_batches(open_table(path), kinds, ROWS_PER_BATCH)
    complaint = _complaint(rows.names, rows.schema or pa.schema([]), kinds)
    if complaint:
        raise UserError(f"{path} {complaint}")
    return rows


def _complaint(names: Sequence[str], schema: pa.Schema, kinds: Mapping[str, Kind]) -> str | None:
    missing = [name for name, kind in kinds.items() if name not in names and kind != "reference"]
    if missing:
        return (
            f"lacks column {', '.join(missing)} (found: {', '.join(names) or 'none'}); "
            "rename its columns or name yours with the options"
        )
    for name, kind in kinds.items():
        if name in schema.names and not _suits(schema.field(name).type, kind):
            expected = f"lists of {kind}" if kind in ("texts", "numbers") else "text"
            return f"has {schema.field(name).type} in column {name}; it must hold {expected}"
    return None


def _suits(column_type: pa.DataType, kind: Kind) -> bool:
    if pa.types.is_null(column_type):  # a column of nothing but nulls: each row is reported
        return kind != "numbers"
    if kind not in ("texts", "numbers"):
        return _is_text(column_type.value_type if pa.types.is_dictionary(column_type) else column_type)
    if not (pa.types.is_list(column_type) or pa.types.is_large_list(column_type)):
        return False
    value = column_type.value_type
    return _is_text(value) if kind == "texts" else bool(pa.types.is_integer(value) or pa.types.is_floating(value))


def _is_text(column_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(column_type) or pa.types.is_large_string(column_type))
