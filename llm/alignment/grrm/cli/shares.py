"""Results of rows in files beside the output, from which a command that ended early goes on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

Opened = TypeVar("Opened")
Compute = Callable[[Opened, Sequence[int]], list[Any]]  # of row indices: the result of each, as JSON
IsFinal = Callable[[Any], bool]  # of a result: False where the row is to be computed again by the next command
# What does not change the rows.
_HOW = ("--devices", "--batch-deadline", "--batch-rows", "--deadline", "--token-env")


def compute_share(
    n_rows: int,
    batch_rows: int,
    open_it: Callable[[], Opened],
    compute: Compute[Opened],
    index: int,
    n: int,
    path: Path,
    tell: Callable[[int], None] = lambda n_done: None,
    is_final: IsFinal = lambda value: True,
) -> None:
    """Append what becomes of every `n`-th row from `index` on, a line each, but for those with a final result there.

    `tell` gets the number of rows that are done, those of other files included.
    """
    from grrm.inference.batch_calls import batches

    done = read_done(path.parent, path.name.partition("-")[0], is_final)
    _drop_half_line(path)
    still_open = [row for row in range(index, n_rows, n) if row not in done]
    if not still_open:
        return
    opened = open_it()
    for positions in batches(len(still_open), batch_rows, lambda n_new, _: tell(len(done) + n_new)):
        rows = [still_open[position] for position in positions]
        lines = [json.dumps([row, value]) + "\n" for row, value in zip(rows, compute(opened, rows), strict=True)]
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(lines))


def read_done(parts: Path, key: str, is_final: IsFinal = lambda value: True) -> dict[int, Any]:
    """Read the final results, of a row the last one; a line that is being written, or was cut off, is none."""
    done = {}
    for path in sorted(parts.glob(f"{key}-*.jsonl"), key=lambda path: path.stat().st_mtime_ns):
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
            row, done_value = json.loads(line)
            done[row] = done_value
    return {row: value for row, value in done.items() if is_final(value)}


def _drop_half_line(path: Path) -> None:
    if path.exists():
        content = path.read_bytes()
        os.truncate(path, content.rfind(b"\n") + 1)


def fingerprint(words: Sequence[str], rows: Path) -> str:
    """Of the command without its devices, and of the files and folders that it names: another makes other rows.

    Of the folder `rows` every file counts, of others those directly in it.
    """
    digest, skipped = hashlib.sha256(), False
    for word in words:
        option = word.replace("_", "-")
        if not skipped and not option.startswith(_HOW):
            digest.update(f"{word}\0".encode())
            name = word.partition("=")[2] or word
            # Path.exists raises for a text that is longer than a name may be; a judge may be FILE:FUNCTION.
            paths = [Path(text) for text in (name, name.rpartition(":")[0]) if text and os.path.exists(text)]
            inside = [file for path in paths for file in sorted(path.glob("**/*" if path == rows else "*"))]
            for file in [*paths, *inside]:
                state = file.stat()
                digest.update(f"{file.name} {state.st_size} {state.st_mtime_ns}\0".encode() if file.is_file() else b"")
        skipped = option in _HOW
    return digest.hexdigest()[:16]
