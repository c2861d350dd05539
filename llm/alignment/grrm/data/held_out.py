"""Rows held out of a file for evaluation, none of whose sources occurs in training."""

from __future__ import annotations

import hashlib
import unicodedata
from pathlib import Path
from typing import Any, NamedTuple

from grrm.data.convert import fault_of_pair
from grrm.data.layouts.table import RowError
from grrm.data.layouts.user_rows import UserRows
from grrm.data.parquet import iter_rows, write_rows
from grrm.errors import UserError


class HeldOut(NamedTuple):
    """The file, its number of rows, and the numbers of the rows (from 1) to leave out of training."""

    path: Path
    written: int
    without: frozenset[int]

    def summary(self) -> str:
        """One line: rows held out, and those left out of training besides."""
        return (
            f"{self.path}: {self.written} rows held out, "
            f"{len(self.without) - self.written} others with their source texts left out of training"
        )


def hold_out(rows: UserRows, out: Path, n_rows: int, prompt_type: str) -> HeldOut:
    """Write `n_rows` usable rows of a file, each of another source text, as parquet; the same ones every time.

    Texts are compared by `comparable`. A row of training may have no held-out source on either side, so that neither
    another translation of one nor the pair in the other direction remains. Raises UserError as reading does, and for a
    file that has too few rows.
    """
    first: dict[bytes, int] = {}
    for number, values in iter_rows(rows):
        if not isinstance(values, RowError) and fault_of_pair(values, prompt_type) is None:
            first.setdefault(_digest(values[0]), number)
    if len(first) <= n_rows:
        raise UserError(f"{rows.path} has {len(first)} usable source texts; hold out fewer than {n_rows} of them")
    chosen = set(sorted(first)[:n_rows])
    held: list[tuple[Any, ...]] = []
    without: set[int] = set()
    for number, values in iter_rows(rows):
        if isinstance(values, RowError):
            continue
        digests = {_digest(text) for text in values[:2] if isinstance(text, str)}
        if digests & chosen:
            without.add(number)
        if any(first.get(digest) == number for digest in digests & chosen):
            held.append(values)
    return HeldOut(out, write_rows(out, held), frozenset(without))


def comparable(text: str) -> str:
    """A text without what two spellings of one differ in: compatibility forms, case and spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _digest(text: str) -> bytes:
    return hashlib.blake2b(comparable(text).encode("utf-8", "surrogatepass"), digest_size=16).digest()
