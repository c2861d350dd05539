"""A user's file under our names of columns: named by the user, by a language, or as they are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from grrm.data.layouts.opening import open_table
from grrm.data.layouts.table import Row, RowError, RowTable, sound_rows
from grrm.data.layouts.translation_files import COLUMNS as COLUMNS
from grrm.data.layouts.translation_files import language_of_name
from grrm.errors import UserError, UserErrors, mistake_in
from grrm.gqm.languages import display_name

DOCUMENT, POSITION = "document", "position"  # optional: see `grrm.data.documents`
OTHER_NAMES = {DOCUMENT: "page"}  # of LibreOffice's corpus
_NESTED = "translation"  # the column of the hub's data sets that holds a text for each language
_LANGUAGE_OF = {"src_text": "src_lang", "trg_text": "trg_lang"}
Getter = Callable[[Row], Any]


@dataclass(frozen=True)
class UserRows:
    """A file of rows, and the names of its columns. It is opened once, as JSON is read to its end for these names.

    Args:
        path: as in `open_table`.
        target: a text file with the translations of the lines of `path`.
        columns: our names of columns with those of the file; `translation.en` is a part of a column.
        src_lang: the source language of every row; else the column's, or what the file's name says.
        trg_lang: the target language of every row; likewise. Two files whose names say the same say neither.
        languages: those of a folder of parallel texts to pair, as in `parallel_table`; none for all.
    """

    path: Path
    target: Path | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    src_lang: str | None = None
    trg_lang: str | None = None
    languages: tuple[str, ...] = ()

    def under(self, columns: Sequence[str], optional: Collection[str] = ()) -> NamedColumns:
        """The file opened, with the column or the language of each of `columns`.

        Raises UserError with all that is missing or unknown, beside the errors of `open_table`.
        """
        languages = {"src_lang": self.src_lang, "trg_lang": self.trg_lang}
        if self.target is not None:
            named = language_of_name(self.path), language_of_name(self.target)
            if named[0] != named[1]:  # else of both, as in news.en-de.src and news.en-de.trg
                languages = {name: lang or own for (name, lang), own in zip(languages.items(), named, strict=True)}
        table = self._table
        if not table.names and table.schema is None:
            next(sound_rows(table), None)  # raises where the first row cannot be read
            raise UserError(f"{table.name} has no rows; give a file with at least one sentence pair")
        mistakes = [fault for lang in languages.values() if lang and (fault := mistake_in(display_name, lang))]
        mistakes += [
            f"--columns names {name}, which is none of the columns {', '.join(table.names)}"
            for name in self.columns.values()
            if _column_of(name, table) not in table.names
        ]
        sources = {name: self._source(name, table, languages) for name in columns}
        required = {*columns} - ({*optional} - {*(_LANGUAGE_OF if _NESTED in table.names else ())})
        missing = [name for name in columns if sources[name] is None and name in required]
        if missing:
            mistakes.append(_missing(table, missing, columns))
        if len(mistakes) > 1:
            raise UserErrors(table.name, mistakes)
        if mistakes:
            raise UserError(mistakes[0] if missing else f"{table.name}: {mistakes[0]}")
        return NamedColumns(table, [sources[name] for name in columns], [languages.get(name) for name in columns])

    def has(self, name: str) -> bool:
        """True if the file has the column of our `name`. Raises UserError as `open_table`."""
        return self._source(name, self._table, {}) is not None

    @cached_property
    def _table(self) -> RowTable:
        return open_table(self.path, self.target, self.src_lang, self.trg_lang, self.languages)

    def _source(self, name: str, table: RowTable, languages: Mapping[str, str | None]) -> str | None:
        """The column of the file, or part of one, behind our `name`; "" for a language that all rows have."""
        if name in self.columns:
            return self.columns[name]
        if languages.get(name):
            return ""
        if name in table.names:
            return name
        if OTHER_NAMES.get(name) in table.names and POSITION in table.names:
            return OTHER_NAMES[name]
        lang = languages.get(_LANGUAGE_OF.get(name, ""))
        if lang in table.names:
            return lang
        return f"{_NESTED}.{lang}" if lang in _languages_within(table) else None


def opened(rows: Path | UserRows) -> UserRows:
    """A path as rows whose columns are ours."""
    return rows if isinstance(rows, UserRows) else UserRows(rows)


class NamedColumns:
    """An opened file with the column, or part of one, that each requested name stands for."""

    def __init__(self, table: RowTable, sources: Sequence[str | None], constants: Sequence[str | None]) -> None:
        self.n_rows = table.n_rows
        self._table = table
        self._getters = [_getter(source, constant, table) for source, constant in zip(sources, constants, strict=True)]
        self._names = list(dict.fromkeys(_column_of(source, table) for source in sources if source))

    def values(self) -> Iterator[tuple[Any, ...] | RowError]:
        """The values of each row, in the order in which the columns were asked for; None where a row has none."""
        for row in self._table.read(self._names):
            yield row if isinstance(row, RowError) else tuple(get(row) for get in self._getters)


def _column_of(source: str, table: RowTable) -> str:
    """The column of a part of one: `translation` of `translation.en`, where that is no column itself."""
    return source if source in table.names else source.partition(".")[0]


def _getter(source: str | None, constant: str | None, table: RowTable) -> Getter:
    if source is None:
        return lambda row: None
    if not source:
        return lambda row: constant
    name = _column_of(source, table)
    part = source[len(name) + 1 :]
    if not part:
        return lambda row: row.get(name)
    return lambda row: row[name].get(part) if isinstance(row.get(name), dict) else None


def _missing(table: RowTable, missing: Sequence[str], columns: Sequence[str]) -> str:
    languages = _languages_within(table)
    texts = [name for name in missing if name.endswith("_text")]
    if languages and texts:
        remedy = f"say its languages with --src-lang and --trg-lang, which are of {', '.join(languages)}"
    elif not set(missing) <= {*COLUMNS}:
        remedy = f"rename its columns to {', '.join(columns)}"
    elif texts:
        example = ",".join(f"{name}=YOURS" for name in missing)
        remedy = f"rename its columns to {', '.join(columns)}, or run `grrm data convert --columns {example}` on it"
    else:
        options = " ".join(f"--{name.replace('_', '-')} LANG" for name in missing)
        remedy = f"run `grrm data convert` on it with {options}"
    return f"{table.name} lacks column {', '.join(missing)} (found: {', '.join(table.names) or 'none'}); {remedy}"


def _languages_within(table: RowTable) -> list[str]:
    """The languages of a column `translation`."""
    if _NESTED not in table.names:
        return []
    if table.schema is not None:
        kind = table.schema.field(_NESTED).type
        return [kind.field(at).name for at in range(kind.num_fields)] if pa.types.is_struct(kind) else []
    rows = (row for row in table.read(None) if not isinstance(row, RowError))
    return next((list(row[_NESTED]) for row in rows if isinstance(row.get(_NESTED), dict)), [])
