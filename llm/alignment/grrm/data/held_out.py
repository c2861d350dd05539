"""Rows held out of a file for evaluation, none of whose sources occurs in training."""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from grrm.data.convert import fault_of_pair
from grrm.data.documents import CARRIED, carried, carried_columns, with_location
from grrm.data.layouts.table import RowError
from grrm.data.layouts.user_rows import COLUMNS, UserRows
from grrm.data.parquet import SCHEMA, iter_rows, write_rows
from grrm.errors import UserError
from grrm.gqm.marks import cap_marks

Item = TypeVar("Item")


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
    columns = carried_columns(rows)
    for number, values in iter_rows(rows, (*COLUMNS, *CARRIED), CARRIED):
        if not isinstance(values, RowError) and fault_of_pair(values, prompt_type) is None:
            first.setdefault(_digest(values[0]), number)
    if len(first) <= n_rows:
        raise UserError(f"{rows.path} has {len(first)} usable source texts; hold out fewer than {n_rows} of them")
    chosen = set(sorted(first)[:n_rows])
    held: list[tuple[Any, ...]] = []
    without: set[int] = set()
    for number, values in iter_rows(rows, (*COLUMNS, *CARRIED), CARRIED):
        if isinstance(values, RowError):
            continue
        digests = {_digest(text) for text in values[:2] if isinstance(text, str)}
        if digests & chosen:
            without.add(number)
        if any(first.get(digest) == number for digest in digests & chosen):
            held.append(carried(values, columns))
    return HeldOut(out, write_rows(out, held, with_location(SCHEMA, columns)), frozenset(without))


def comparable(text: str) -> str:
    """A text without what two spellings of one differ in: compatibility forms, case and spaces."""
    return " ".join(unicodedata.normalize("NFKC", cap_marks(text)).casefold().split())


def _digest(text: str) -> bytes:
    return hashlib.blake2b(comparable(text).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def held_out_count(val_size: float, n_items: int) -> int:
    """The number of items to hold out: `val_size` is a share of all, or from 1 on the number."""
    return int(val_size) if val_size >= 1 else math.ceil(val_size * n_items)


def held_out_split(
    items: Sequence[Item], prompt_of: Callable[[Item], Hashable], val_size: float, seed: int
) -> tuple[list[Item], list[Item]]:
    """(training, held-out) items in their order; items of one prompt stay together.

    Prompts are drawn with `seed` until the `held_out_count` of `val_size` is reached. Raises UserError when nothing
    would be left to train on.
    """
    n_held_out = held_out_count(val_size, len(items))
    of_prompt: dict[Hashable, list[int]] = {}
    for index, item in enumerate(items):
        of_prompt.setdefault(prompt_of(item), []).append(index)
    members = list(of_prompt.values())
    held: set[int] = set()
    for number in np.random.default_rng(seed).permutation(len(members)):
        if len(held) >= n_held_out:
            break
        held.update(members[number])
    if len(held) == len(items):
        raise UserError(
            f"holding out {n_held_out} of {len(items)} rows and all that share their prompts leaves none to train on: "
            "hold out fewer or give eval_datasets"
        )
    return [item for index, item in enumerate(items) if index not in held], [items[index] for index in sorted(held)]
