"""The place of rows in documents, and the segments before each: the context that judges may see.

Files of rows that are made from others carry it on, and a column `terms` too.

Columns, both optional: `document`, a name or number (`page` in the corpus of LibreOffice's help), and `position`, a
whole number that rises through the document and may have gaps.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from grrm.data.layouts.table import RowError
from grrm.data.layouts.user_rows import COLUMNS, DOCUMENT, OTHER_NAMES, POSITION, UserRows, opened
from grrm.data.parquet import iter_rows
from grrm.errors import UserError
from grrm.gqm.groups import ContextSegment, TranslationTask
from grrm.gqm.languages import language_pair
from grrm.gqm.terms import read_terms, terms_mapping

LOCATION, TERMS = (DOCUMENT, POSITION), "terms"
CARRIED = (*LOCATION, TERMS)
_INTEGER = re.compile(r"(-?\d{1,20})(?:\.0*)?")  # 3.0 is written by pandas, where some rows have none
_LIMIT = 1 << 63  # of positions in parquet files
Context = tuple[ContextSegment, ...]
Location = tuple[tuple[str, str], int]  # document and pair of languages, position


class LocatedRow(NamedTuple):
    """A row's texts, languages and place, as its file has them."""

    source: Any = None
    reference: Any = None
    src_lang: Any = None
    trg_lang: Any = None
    document: Any = None
    position: Any = None

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> LocatedRow:
        """A row with our names of columns; what it lacks is None."""
        source, reference, src_lang, trg_lang = map(row.get, COLUMNS)
        return cls(source, reference, src_lang, trg_lang, *_location_in(row))

    @classmethod
    def of_task(cls, task: TranslationTask, row: Mapping[str, Any]) -> LocatedRow:
        """A task with the place that its row has."""
        return cls(task.source, task.reference, task.src_lang, task.trg_lang, *_location_in(row))


def contexts_of(rows: Sequence[LocatedRow], n_segments: int, where: Callable[[int], str]) -> list[Context]:
    """For each row up to `n_segments` that come before it in its document and its pair of languages, nearest last.

    A segment that stands in several rows is one; its translation is the first reference that there is. A row without a
    document has none. Raises UserError, naming the row (`where` of its index), for a document without a position, a
    position that is no whole number, or two different sources in one place, and if no row has a document.
    """
    locations = [_location(row, where(index)) for index, row in enumerate(rows)]
    if not any(locations):
        raise UserError(
            f"{where(0)} and all others have no {DOCUMENT}, which context_segments needs: give the columns {DOCUMENT} "
            f"and {POSITION}, or set it to 0"
        )
    segments: dict[tuple[str, str], dict[int, ContextSegment]] = defaultdict(dict)
    for index, (row, location) in enumerate(zip(rows, locations, strict=True)):
        if location is not None and isinstance(row.source, str) and row.source.strip():
            _enter(segments[location[0]], location[1], row, where(index))
    ordered = {document: sorted(of_document) for document, of_document in segments.items()}

    def before(location: Location | None) -> Context:
        if location is None:
            return ()
        document, position = location
        positions = ordered.get(document, [])
        end = bisect_left(positions, position)
        return tuple(segments[document][at] for at in positions[max(end - n_segments, 0) : end])

    return [before(location) for location in locations]


def file_contexts(rows: Path | UserRows, n_segments: int) -> list[Context]:
    """`contexts_of` all rows of a file, those that cannot be read included. Raises UserError as reading does, too."""
    path = opened(rows).path
    located_rows = [
        LocatedRow() if isinstance(values, RowError) else LocatedRow(*values)
        for _, values in iter_rows(rows, (*COLUMNS, *LOCATION), optional=("trg_text", *LOCATION))
    ]
    return contexts_of(located_rows, n_segments, lambda index: f"{path} row {index + 1}")


def file_locations(rows: Path | UserRows) -> list[tuple[str | None, int | None]]:
    """Document and position of every row of a file; empty where the file has no column of documents.

    Raises UserError as reading does, and naming the row as `location_of` does.
    """
    if not location_columns(rows):
        return []
    locations: list[tuple[str | None, int | None]] = []
    for number, values in iter_rows(rows, LOCATION, optional=LOCATION):
        try:
            locations.append((None, None) if isinstance(values, RowError) else location_of(*values))
        except UserError as error:
            raise UserError(f"{opened(rows).path} row {number}: {error}") from error
    return locations


def location_columns(rows: Path | UserRows) -> tuple[str, ...]:
    """`LOCATION` where the file has a column of documents, nothing else. Raises UserError as opening it does."""
    return LOCATION if opened(rows).has(DOCUMENT) else ()


def carried_columns(rows: Path | UserRows) -> tuple[str, ...]:
    """Those of `CARRIED` that the file has, the place only where it has documents."""
    return location_columns(rows) + ((TERMS,) if opened(rows).has(TERMS) else ())


def with_location(schema: pa.Schema, columns: Collection[str]) -> pa.Schema:
    """The schema of a parquet file with `columns`, some of `CARRIED` or none, behind its own."""
    for name in columns:
        schema = schema.append(pa.field(name, pa.int64() if name == POSITION else pa.string()))
    return schema


def carried(values: tuple[Any, ...], columns: Collection[str]) -> tuple[Any, ...]:
    """Values of `COLUMNS`, then of those of `CARRIED` that are in `columns`: place as text and number, terms as JSON.

    Raises UserError as `location_of`, and for terms that `read_terms` cannot read.
    """
    document, position, value = values[len(COLUMNS) :]
    terms = read_terms(value)
    if isinstance(terms, str):
        raise UserError(terms)
    text = json.dumps(terms_mapping(terms), ensure_ascii=False) if terms else None
    cells = dict(zip(CARRIED, (*location_of(document, position), text), strict=True))
    return values[: len(COLUMNS)] + tuple(cells[name] for name in columns)


def location_of(document: Any = None, position: Any = None) -> tuple[str | None, int | None]:
    """Document and position as text and number; None twice without a document.

    Raises UserError for a document without a position, or with one that is no whole number of at most 64 bits.
    """
    if document is None or document == "" or document != document:  # NaN, which pandas writes for none
        return None, None
    number = position
    if isinstance(position, str) and (match := _INTEGER.fullmatch(position.strip())):  # of CSV, where all is text
        number = int(match[1])
    if isinstance(position, float) and position.is_integer():  # of pandas, where some rows have none
        number = int(position)
    if isinstance(number, bool) or not isinstance(number, int) or not -_LIMIT <= number < _LIMIT:
        held = "no position" if position is None else "a position that is no whole number of 64 bits"
        raise UserError(  # what differs from row to row is quoted: see `RejectedRow.kind`
            f"{held} in {DOCUMENT} {str(document)[:80]!r}; give every row of a document a whole number in the column "
            f"{POSITION}, in the order of the text"
        )
    return str(document), number


def location_fields(document: Any = None, position: Any = None) -> dict[str, Any]:
    """The keys of a row's place for a line of JSON; none without a document. Raises UserError as `location_of`."""
    name, number = location_of(document, position)
    return {} if name is None else {DOCUMENT: name, POSITION: number}


def _location_in(row: Mapping[str, Any]) -> tuple[Any, Any]:
    return row.get(DOCUMENT, row.get(OTHER_NAMES[DOCUMENT])), row.get(POSITION)


def _location(row: LocatedRow, where: str) -> Location | None:
    """The document, in its languages, and the position in it; None for a row without a document."""
    try:
        document, position = location_of(row.document, row.position)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    if document is None or position is None:
        return None
    languages = [lang if isinstance(lang, str) else "" for lang in (row.src_lang, row.trg_lang)]
    return (document, language_pair(*languages)), position


def _enter(segments: dict[int, ContextSegment], position: int, row: LocatedRow, where: str) -> None:
    reference = row.reference if isinstance(row.reference, str) and row.reference.strip() else None
    earlier = segments.get(position)
    if earlier is None:
        segments[position] = ContextSegment(row.source, reference)
    elif earlier.source != row.source:
        raise UserError(
            f"{where}: {DOCUMENT} {row.document!r} has another source at position {position} already; number its "
            "segments in the order of the text, each once"
        )
    elif earlier.translation is None:
        segments[position] = earlier._replace(translation=reference)
