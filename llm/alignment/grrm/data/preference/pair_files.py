"""The folder that the stages of the preference pipeline share: a parquet file per language pair, `de2en.parquet`."""

from __future__ import annotations

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


def row_count(path: Path) -> int:
    """Rows of a language-pair file. Raises UserError for one that is not parquet."""
    with open_parquet(path, ()) as file:
        return int(file.metadata.num_rows)


def column_names(path: Path) -> list[str]:
    """Columns of a language-pair file. Raises UserError for one that is not parquet."""
    with open_parquet(path, ()) as file:
        return list(file.schema_arrow.names)


def pair_file(folder: Path, src_lang: str, trg_lang: str) -> Path:
    """The file of the rows of a language pair."""
    return folder / f"{src_lang}2{trg_lang}.parquet"


def is_text(kind: pa.DataType) -> bool:
    """True for a column of texts, or of nothing but nulls."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind))


def is_list(kind: pa.DataType) -> bool:
    """True for a column of lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
