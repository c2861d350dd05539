"""A user's file under our names of columns: named by the user, by a language, or as they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from grrm.data.layouts.opening import open_table
from grrm.data.layouts.table import Row, RowError, RowTable
from grrm.errors import UserError, UserErrors
from grrm.gqm.languages import display_name

COLUMNS = ("src_text", "trg_text", "src_lang", "trg_lang")
_NESTED = "translation"  # the column of the hub's data sets that holds a text for each language
_LANGUAGE_OF = {"src_text": "src_lang", "trg_text": "trg_lang"}
_TAG_OF_FILE = re.compile("[a-z]{2}|[a-z]{2,3}[-_][A-Za-z]{2,4}")
Getter = Callable[[Row], Any]


@dataclass(frozen=True, slots=True)
class UserRows:
    """Where rows are, and what their columns are called.

    Args:
        path: as in `open_table`.
        target: a text file with the translations of the lines of `path`.
        columns: our names of columns with those of the file; `translation.en` is a part of a column.
        src_lang: the source language of every row; else the column's, or what the file's name says.
        trg_lang: the target language of every row; likewise.
    """

    path: Path
    target: Path | None = None
    columns: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    src_lang: str | None = None
    trg_lang: str | None = None

    def under(self, columns: Sequence[str], optional: Collection[str] = ()) -> NamedColumns:
        """The file opened, with the column or language behind each of `columns`.

        Raises UserError with all that is missing or unknown, beside the errors of `open_table`.
        """
        given = {"src_lang": self.src_lang, "trg_lang": self.trg_lang}
        if self.target is not None:
            named = {"src_lang": _language_of_name(self.path), "trg_lang": _language_of_name(self.target)}
            given = {name: lang or named[name] for name, lang in given.items()}
        table = open_table(self.path, target=self.target, src_lang=self.src_lang, trg_lang=self.trg_lang)
        if not table.names and table.schema is None:
            raise UserError(f"{table.place} has no rows; give a file with at least one sentence pair")
        mistakes = [str(error) for lang in given.values() if lang and (error := _unknown(lang))]
        mistakes += [
            f"--columns names {name}, which is none of the columns {', '.join(table.names)}"
            for name in self.columns.values()
            if name.split(".")[0] not in table.names
        ]
        places = {name: self._place(name, table, given) for name in columns}
        missing = [name for name in columns if places[name] is None and name not in optional]
        if missing:
            mistakes.append(_missing(table, missing, columns))
        if len(mistakes) > 1:
            raise UserErrors(table.place, mistakes)
        if mistakes:
            raise UserError(mistakes[0] if missing else f"{table.place}: {mistakes[0]}")
        return NamedColumns(table, [places[name] for name in columns], [given.get(name) for name in columns])

    def _place(self, name: str, table: RowTable, given: Mapping[str, str | None]) -> str | None:
        """The column of the file, or part of one, behind our `name`; "" where a language is given instead."""
        if name in self.columns:
            return self.columns[name]
        if given.get(name):
            return ""
        if name in table.names:
            return name
        lang = given.get(_LANGUAGE_OF.get(name, ""))
        if lang in table.names:
            return lang
        return f"{_NESTED}.{lang}" if lang in _languages_within(table) else None


def opened(rows: Path | UserRows) -> UserRows:
    """A path as rows whose columns are ours."""
    return rows if isinstance(rows, UserRows) else UserRows(rows)


class NamedColumns:
    """An opened file with the place of each column that is asked for."""

    def __init__(self, table: RowTable, places: Sequence[str | None], constants: Sequence[str | None]) -> None:
        self.n_rows = table.n_rows
        self._table = table
        self._getters = [_getter(place, constant) for place, constant in zip(places, constants, strict=True)]
        self._names = list(dict.fromkeys(place.split(".")[0] for place in places if place))

    def values(self) -> Iterator[tuple[Any, ...] | RowError]:
        """The values of each row, in the order in which the columns were asked for; None where a row has none."""
        for row in self._table.read(self._names):
            yield row if isinstance(row, RowError) else tuple(get(row) for get in self._getters)


def _getter(place: str | None, constant: str | None) -> Getter:
    if place is None:
        return lambda row: None
    if not place:
        return lambda row: constant
    name, _, part = place.partition(".")
    if not part:
        return lambda row: row.get(name)
    return lambda row: row[name].get(part) if isinstance(row.get(name), dict) else None


def _missing(table: RowTable, missing: Sequence[str], columns: Sequence[str]) -> str:
    languages = _languages_within(table)
    texts = [name for name in missing if name.endswith("_text")]
    if languages and texts:
        remedy = f"say its languages with --src-lang and --trg-lang, which are of {', '.join(languages)}"
    elif texts or not set(missing) <= {"src_lang", "trg_lang"}:
        example = ",".join(f"{name}=YOURS" for name in missing)
        remedy = f"rename its columns to {', '.join(columns)}, or name them with --columns {example}"
    else:
        options = " and ".join(f"--{name.replace('_', '-')}" for name in missing)
        remedy = f"give the language of every row with {options}"
    return f"{table.place} lacks column {', '.join(missing)} (found: {', '.join(table.names) or 'none'}); {remedy}"


def _languages_within(table: RowTable) -> list[str]:
    """The languages of a column `translation`."""
    if _NESTED not in table.names:
        return []
    if table.schema is not None:
        kind = table.schema.field(_NESTED).type
        return [kind.field(at).name for at in range(kind.num_fields)] if pa.types.is_struct(kind) else []
    row = next((row for row in table.read(None) if not isinstance(row, RowError)), {})
    return list(row[_NESTED]) if isinstance(row.get(_NESTED), dict) else []


def _unknown(lang: str) -> UserError | None:
    try:
        display_name(lang)
    except UserError as error:
        return error
    return None


def _language_of_name(path: Path) -> str | None:
    """The language that a file is named after: `en` of train.en and of train.en.gz, `eng_Latn` of eng_Latn.dev."""
    tags = [part for part in path.name.split(".") if _TAG_OF_FILE.fullmatch(part) and not _unknown(part)]
    return tags[-1] if tags else None
