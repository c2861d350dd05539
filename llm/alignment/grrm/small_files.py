"""Small files that the user names (arguments, tokens, lines of text), which may be pipes that nobody writes to."""

from __future__ import annotations

import os
import select
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grrm.errors import UserError

WAIT_S = 30.0  # for the next bytes of a pipe
_CHUNK = 1 << 16


def read_small_file(path: str | os.PathLike[str], title: str) -> bytes:
    """The bytes of a file, which errors call `title`.

    Raises OSError as `open`, and UserError for a pipe to which nothing is written for `WAIT_S`.
    """
    with open(path, "rb", buffering=0, opener=_without_waiting) as file:
        is_pipe = stat.S_ISFIFO(os.fstat(file.fileno()).st_mode)
        os.set_blocking(file.fileno(), True)

        def next_bytes() -> bytes:
            if is_pipe and not select.select([file], [], [], WAIT_S)[0]:
                raise UserError(
                    f"the {title} is a pipe to which nothing was written for {WAIT_S:g} s: write to it, or name a file"
                )
            return file.read(_CHUNK)

        return b"".join(iter(next_bytes, b""))


@contextmanager
def rereadable(path: str, title: str) -> Iterator[str]:
    """The path of what can be read more than once: of a copy where `path` is a pipe, which errors name all the same.

    Raises as `read_small_file`.
    """
    if not Path(path).is_fifo():
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / Path(path).name
        copy.write_bytes(read_small_file(path, title))
        try:
            yield str(copy)
        except UserError as error:
            error.args = tuple(str(said).replace(str(copy), path) for said in error.args)
            raise


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # to open a pipe is to wait for its writer otherwise
