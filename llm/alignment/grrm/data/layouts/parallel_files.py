"""Test sets of many languages: a folder of parallel texts (FLORES-200, NTREX-128), rows with a pair (WMT24++)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path

from grrm.data.layouts.table import Row, RowError, RowTable
from grrm.data.layouts.text_files import line_pair_table
from grrm.errors import UserError
from grrm.gqm.languages import display_name, language_code

_TAG_OF_FILE = re.compile("[a-z]{2}|[a-z]{2,3}[-_][A-Za-z]{2,4}")
_COLUMNS = ("src_text", "trg_text", "src_lang", "trg_lang")
_BEFORE_TXT = re.compile(r".*\.([a-z]{3})\.txt")


def language_of_name(path: Path) -> str | None:
    """The language that a file is named after: `en` of train.en.gz, `eng_Latn` of eng_Latn.dev, `eng` of x.eng.txt."""
    tags = [part for part in path.name.split(".") if _TAG_OF_FILE.fullmatch(part)]
    tags += _BEFORE_TXT.findall(path.name)
    return next((tag for tag in reversed(tags) if is_language(tag)), None)


def is_language(tag: str) -> bool:
    """True for a language that a prompt can name."""
    try:
        display_name(tag)
    except UserError:
        return False
    return True


def parallel_table(folder: Path, languages: Sequence[str] = ()) -> RowTable | None:
    """Rows of all ordered pairs of `languages`, by default of all files; None for a folder without two such files.

    A language is a code, or `zh=zho_Hans` for the file of another tag. Of two files of a language the one with the
    shorter name is read. Raises UserError for a language without a file.
    """
    names = sorted((path for path in folder.iterdir() if path.is_file()), key=lambda path: (-len(path.name), path.name))
    files = {tag: path for path in names if (tag := language_of_name(path))}
    if len(files) < 2:
        return None
    chosen = _chosen(folder, files, languages)

    def rows(_: Sequence[str] | None) -> Iterator[Row | RowError]:
        for src_lang, trg_lang in permutations(chosen, 2):
            for row in line_pair_table(chosen[src_lang], chosen[trg_lang]).read(None):
                yield row if isinstance(row, RowError) else {**row, "src_lang": src_lang, "trg_lang": trg_lang}

    return RowTable(str(folder), _COLUMNS, rows)


def _chosen(folder: Path, files: Mapping[str, Path], languages: Sequence[str]) -> dict[str, Path]:
    by_code = {language_code(tag): path for tag, path in files.items()}
    if not languages:
        return dict(sorted(by_code.items()))
    chosen = {}
    for language in languages:
        code, _, tag = language.partition("=")
        path = files.get(tag or code) or by_code.get(language_code(tag or code))
        if path is None:
            raise UserError(f"{folder} has no file of {tag or code} (there are {', '.join(sorted(files))})")
        chosen[code] = path
    return chosen


def with_language_pairs(table: RowTable) -> RowTable:
    """The table, and where it has WMT24++'s columns `lp` (en-de_DE), `source` and `target`, with ours beside them.

    A row that is_bad_source is an error: that data set says so of sources that nobody should translate.
    """
    if not {"lp", "source", "target"} <= {*table.names} or {*_COLUMNS} & {*table.names}:
        return table

    def rows(_: Sequence[str] | None) -> Iterator[Row | RowError]:
        for number, row in enumerate(table.read(None), start=1):
            if isinstance(row, RowError) or not isinstance(row.get("lp"), str):
                yield row
            elif row.get("is_bad_source"):
                yield RowError(f"{table.name} row {number} is_bad_source; leave it out", "is_bad_source")
            else:
                src_lang, _, trg_lang = row["lp"].partition("-")
                values = (row.get("source"), row.get("target"), src_lang, trg_lang)
                yield {**row, **dict(zip(_COLUMNS, values, strict=True))}

    return RowTable(table.name, (*table.names, *_COLUMNS), rows, table.n_rows)
