"""The files in a Debian package (.deb), read without Debian's tools."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from grrm.errors import UserError

_MAGIC, _HEADER_SIZE = b"!<arch>\n", 60


def deb_files(path: Path) -> Iterator[tuple[str, bytes]]:
    """(name such as `usr/share/doc/x`, contents) of each ordinary file. Raises UserError for a file that is no package.

    A package is an `ar` archive of two tar archives, of which `data.tar` has the files, compressed by xz, gzip or
    zstd.
    """
    try:
        with path.open("rb") as file:
            name, packed = _data_member(file)
        with _opened_tar(name, packed) as archive:
            for member in archive:
                contents = archive.extractfile(member) if member.isfile() else None
                if contents is not None:
                    yield member.name.removeprefix("./"), contents.read()
    except (OSError, ValueError, EOFError, tarfile.TarError) as error:
        raise UserError(f"'{path}' is not a whole Debian package ({error}): download it again") from error


def _data_member(file: BinaryIO) -> tuple[str, bytes]:
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("no ar archive")
    while len(header := file.read(_HEADER_SIZE)) == _HEADER_SIZE:
        name, size = header[:16].decode("ascii").strip().rstrip("/"), int(header[48:58])
        packed = file.read(size)
        if name.startswith("data.tar"):
            if len(packed) < size:
                raise ValueError(f"{name} is cut short")
            return name, packed
        file.seek(size % 2, io.SEEK_CUR)  # members begin at even places
    raise ValueError("no data.tar in it")


def _opened_tar(name: str, packed: bytes) -> tarfile.TarFile:
    if name.endswith(".zst"):  # which Python's own library reads from 3.14 on only
        stream: Any = pa.CompressedInputStream(pa.BufferReader(packed), "zstd")
        return tarfile.open(fileobj=stream, mode="r|")
    return tarfile.open(fileobj=io.BytesIO(packed))
