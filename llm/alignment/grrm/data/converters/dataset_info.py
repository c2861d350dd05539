"""LLaMA-Factory's list of data sets, `dataset_info.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grrm.data.atomic import atomic_path
from grrm.errors import UserError

FILE_NAME = "dataset_info.json"


def enter_dataset(conversations: Path) -> Path:
    """Enter a parquet file of `messages` into the list beside it, under its name without suffix; returns the list.

    Other entries stay, one of the same name is replaced. Raises UserError when the file is not parquet or the list
    that is there cannot be read.
    """
    if conversations.suffix != ".parquet":
        raise UserError(f"{conversations} cannot be entered into {FILE_NAME}; convert to a .parquet file instead")
    path = conversations.with_name(FILE_NAME)
    entries = _entries(path) if path.exists() else {}
    entries[conversations.stem] = {
        "file_name": conversations.name,
        "formatting": "sharegpt",
        "columns": {"messages": "messages"},
        "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"},
    }
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(entries, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def _entries(path: Path) -> dict[str, Any]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as JSON ({error}); mend it or move it away") from error
    if not isinstance(entries, dict):
        raise UserError(f"{path} does not hold a JSON object of data sets; mend it or move it away")
    return entries
