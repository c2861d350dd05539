"""Files that appear whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grrm.errors import UserError


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside `path`; it replaces `path` when the block ends well and vanishes when it does not.

    The folder is created when missing. Raises UserError when the folder cannot be written to.
    """
    temporary = _temporary_beside(path)
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all. Errors as in `atomic_path`."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_json(path: Path, content: Any, **form: Any) -> None:
    """Write `content` as a JSON file, as `json_bytes`, that appears whole or not at all."""
    write_bytes(path, json_bytes(content, **{"indent": 1, **form}))


def json_bytes(content: Any, **form: Any) -> bytes:
    """JSON in UTF-8 and a line feed, escaped where a text holds half a character; `form` is for `json.dumps`."""
    try:
        return (json.dumps(content, ensure_ascii=False, **form) + "\n").encode()
    except UnicodeEncodeError:
        return (json.dumps(content, **form) + "\n").encode()


def check_writable(*paths: Path | None) -> None:
    """Raises UserError now if `atomic_path` would: before hours of work, not after them. None is no path."""
    for path in filter(None, paths):
        _temporary_beside(path).unlink()


def _temporary_beside(path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # as root it would replace /dev/null
            raise OSError(f"{path} is {'a folder' if path.is_dir() else 'no file'}")
        name = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))  # and as private as the user's umask says
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"cannot write {path} ({reason}); choose an output path in a folder you may write to"
        ) from error
    return name
