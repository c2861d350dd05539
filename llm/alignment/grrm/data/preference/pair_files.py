"""The folder that the stages of the preference pipeline share: a parquet file per language pair, `de2en.parquet`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from grrm.data.layouts.arrow_files import open_parquet
from grrm.errors import UserError

_PATTERN = "??2??.parquet"


def pair_files(folder: Path, part_id: int = 0, device_num: int = 1) -> list[Path]:
    """Every `device_num`-th of the folder's language-pair files in the order of their names, from `part_id` on.

    A part without a file is empty. Raises UserError for a part that there is not, and a folder without such files.
    """
    if not 0 <= part_id < device_num:
        raise UserError(f"part {part_id} of {device_num} does not exist; number the parts from 0 to {device_num - 1}")
    files = sorted(folder.glob(_PATTERN)) if folder.is_dir() else []
    if not files:
        raise UserError(f"{folder} holds no files named like de2en.parquet; make them with `grrm data rm-seed`")
    return files[part_id::device_num]


def pair_file(folder: Path, src_lang: str, trg_lang: str) -> Path:
    """The file of the rows of a language pair."""
    return folder / f"{src_lang}2{trg_lang}.parquet"


def check_columns(path: Path, contents: Mapping[str, str], remedy: str) -> None:
    """Check that each column of a file with rows holds "text", "lists of texts" or "lists of numbers", as named.

    Raises UserError, with `remedy` where a column is missing, for one of another type, and a file that is not parquet.
    """
    with open_parquet(path) as file:
        schema = file.schema_arrow
        if not file.metadata.num_rows:  # a language pair that the seed has no rows of, never sampled
            return
    if missing := [name for name in contents if name not in schema.names]:
        names = ", ".join(schema.names) or "none"
        raise UserError(f"{path} lacks column {', '.join(missing)} (found: {names}); {remedy}")
    for name, content in contents.items():
        kind = schema.field(name).type
        member = kind.value_type if is_list(kind) else None
        if not _is_of(kind if content == "text" else member, content):
            raise UserError(f"{path} has {kind} in column {name}; it must hold {content}")


def _is_of(kind: pa.DataType | None, content: str) -> bool:
    """True for values of a type that such a column may have, or nothing but nulls."""
    if kind is None or pa.types.is_null(kind):
        return kind is not None
    if content == "lists of numbers":
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_list(kind: pa.DataType) -> bool:
    """True for a column of lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
