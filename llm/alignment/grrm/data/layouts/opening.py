"""A file, a folder of shards or a saved data set as a `RowTable`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from grrm.data.layouts.arrow_files import arrow_table, csv_table, parquet_table
from grrm.data.layouts.hub import hub_table, is_data_set_name
from grrm.data.layouts.table import Row, RowError, RowTable, ending_of
from grrm.data.layouts.text_files import json_lines_table, json_table, line_pair_table
from grrm.data.layouts.translation_files import parallel_table, tmx_table, with_language_pairs, xliff_table
from grrm.errors import UserError

Described = TypeVar("Described")
_TABLES: dict[str, Callable[[Path], RowTable]] = {
    ".parquet": parquet_table,
    **dict.fromkeys((".arrow", ".feather", ".ipc"), arrow_table),
    ".csv": lambda path: csv_table(path, ","),
    ".tsv": lambda path: csv_table(path, "\t"),
    **dict.fromkeys((".jsonl", ".ndjson"), json_lines_table),
    ".json": json_table,
    ".tmx": lambda path: tmx_table(path, None, None),
    ".sgm": lambda path: line_pair_table(path, None),
    **dict.fromkeys((".xliff", ".xlf", ".mxliff", ".sdlxliff"), xliff_table),
}
ENDINGS = tuple(_TABLES)
_NOT_ROWS = ("dataset_info.json", "dataset_infos.json", "source.json")  # what a data set says of itself
_SPLIT = re.compile(r"(train|valid(?:ation)?|dev|test|heldout)(?![a-z])", re.IGNORECASE)


def open_table(
    path: Path,
    target: Path | None = None,
    src_lang: str | None = None,
    trg_lang: str | None = None,
    languages: Sequence[str] = (),
) -> RowTable:
    """The rows of `path` in the layout that its ending names, or with `target` the lines of both.

    Args:
        path: a file, a folder of files of one ending or of `Dataset.save_to_disk`, or one of parallel texts; what is
            not there and looks like `Owner/Name` is a data set of Hugging Face's hub.
        target: a text file whose lines are the translations of those of `path`.
        src_lang: the language in which a translation memory has the sources; its own where None.
        trg_lang: the language in which a translation memory has the translations; each where None.
        languages: those of a folder of parallel texts that are paired; none for all.

    Raises:
        UserError: where there is no such file, its ending is unknown, or its head cannot be read.
    """
    if languages:
        table = parallel_table(path, languages) if path.is_dir() else None
        if table is None:
            raise UserError(f"{path} is no folder of parallel texts; leave out --languages")
        return table
    if target is not None:
        return line_pair_table(path, target)
    if path.is_dir():
        has_rows = any(ending_of(file) in _TABLES and ending_of(file) != ".sgm" for file in path.iterdir())
        table = None if has_rows else parallel_table(path)
        return table or _folder_table(path, src_lang, trg_lang)
    if not path.exists():
        if is_data_set_name(path) and ending_of(path) not in _TABLES:
            return hub_table(str(path))
        raise UserError(f"{path} does not exist; give the path of a file or folder")
    ending = ending_of(path)
    if ending == ".tmx":
        return tmx_table(path, src_lang, trg_lang)
    if ending not in _TABLES:
        raise UserError(
            f"{path} is no file of rows, as its ending is none of {' '.join(ENDINGS)}: give one of these, or the "
            "translations of its lines with --target"
        )
    return with_language_pairs(_TABLES[ending](path))


def _folder_table(folder: Path, src_lang: str | None, trg_lang: str | None) -> RowTable:
    splits = folder / "dataset_dict.json"
    if splits.is_file():
        names = _described(splits, lambda content: [str(name) for name in content["splits"]])
        raise UserError(f"{folder} has the splits {', '.join(names)}; give one of them, such as {folder / names[0]}")
    tables = [open_table(path, src_lang=src_lang, trg_lang=trg_lang) for path in _shards(folder)]
    first, *others = [table for table in tables if table.names] or tables  # JSON without rows has no keys
    for table in others:
        differ, has_columns = {*table.names} ^ {*first.names}, table.schema is not None
        if differ and (has_columns or not {*table.names} & {*first.names}):  # keys of JSON may be rare
            shards = [f"{', '.join(shard.names)} in {shard.name}" for shard in (first, table)]
            raise UserError(f"{folder} has columns {' and '.join(shards)}; give a folder of files with the same ones")
    counts = [table.n_rows for table in tables]

    def rows(columns: Sequence[str] | None) -> Iterator[Row | RowError]:
        return chain.from_iterable(table.read(columns) for table in tables)

    total = None if None in counts else sum(count or 0 for count in counts)
    every = tuple(dict.fromkeys(name for table in tables for name in table.names))
    return RowTable(str(folder), every, rows, total, first.schema)


def _described(path: Path, read: Callable[[Any], list[Described]]) -> list[Described]:
    """Read what a file of a saved data set lists, at least one thing."""
    try:
        if listed := read(json.loads(path.read_text(encoding="utf-8"))):
            return listed
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise UserError(f"{path} is not that of a saved data set; save it again, or remove the file to read all others")


def _shards(folder: Path) -> list[Path]:
    """The files of a folder in the order of their names, or in that of a saved data set."""
    state = folder / "state.json"
    if state.is_file():
        return _described(state, lambda content: [folder / shard["filename"] for shard in content["_data_files"]])
    files = sorted(path for path in folder.iterdir() if ending_of(path) in _TABLES and path.name not in _NOT_ROWS)
    endings = sorted({ending_of(path) for path in files})
    if len(endings) != 1:
        kinds = f"files of the kinds {' '.join(endings)}" if endings else f"no file of the kinds {' '.join(ENDINGS)}"
        raise UserError(f"{folder} has {kinds}; give a folder of files of one kind")
    splits = sorted({match[1].lower() for path in files if (match := _SPLIT.match(path.name))})
    if len(splits) > 1:
        raise UserError(f"{folder} has files of the splits {', '.join(splits)}; give a file or a folder of one of them")
    return files
