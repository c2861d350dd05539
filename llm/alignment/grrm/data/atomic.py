"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


def check_writable(path: Path) -> None:
    """Raises UserError now if `atomic_path` would: before hours of work, not after them."""
    _temporary_beside(path).unlink()


def _temporary_beside(path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder")
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"cannot write {path} ({reason}); choose an output path in a folder you may write to"
        ) from error
    os.close(handle)
    os.chmod(name, 0o644)  # mkstemp makes it private, an ordinary file is not
    return Path(name)
