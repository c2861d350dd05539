"""The common parts of corpora of human translations: pairs of languages, disjoint splits, the note of their source.

A text's split depends on its English text (or its document) alone, so that a corpus built with other languages or other
settings never shows in training what this one holds out.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from grrm.data.atomic import write_json
from grrm.data.corpora.pairs import SOURCE_NOTE, CorpusFiles, write_corpus
from grrm.data.corpora.phrase import Side, hash_fraction
from grrm.data.parquet import SCHEMA
from grrm.errors import UserError
from grrm.gqm.languages import LANG_NAMES

HELD_OUT_SHARE, DEV_SHARE = 0.10, 0.05
SIDES: tuple[Side, ...] = ("train", "heldout", "dev")


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of a corpus, written beside it as source.json; `files` are their names with their SHA-256."""

    corpus: str
    licence: str
    origin: str
    files: Mapping[str, str]
    settings: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Limits:
    """Most rows of each file, a random choice; None is all of them."""

    train: int | None = None
    heldout: int | None = None
    dev: int | None = None

    def __post_init__(self) -> None:
        for side in SIDES:
            count = getattr(self, side)
            if count is not None and count < 1:
                raise UserError(f"--{side}-rows is {count}: ask for at least one row, or leave it out for all")


ALL_ROWS = Limits()


def parse_pairs(pairs: str) -> list[tuple[str, str]]:
    """(source, target) of each pair in `en-de,zh-en`. Raises UserError for anything else, and an unknown language."""
    parsed = [tuple(pair.split("-")) for pair in pairs.replace(",", " ").split()]
    for pair in parsed:
        if len(pair) != 2 or not LANG_NAMES.keys() >= set(pair) or pair[0] == pair[1]:
            raise UserError(
                f"--pairs has {'-'.join(pair)!r}, which is not two different ones of {' '.join(LANG_NAMES)}: write "
                "pairs such as en-de,zh-en"
            )
    if not parsed or len(set(parsed)) != len(parsed):
        raise UserError(f"--pairs {pairs!r} names no pair, or one twice: write pairs such as en-de,zh-en")
    return [(source, target) for source, target in parsed]


def letters_of(text: str) -> str:
    """The letters of `text` alone, in one case: what texts that differ in blanks, digits and signs have in common."""
    return "".join(letter for letter in text.casefold() if letter.isalpha())


def split_of(name: str) -> Side:
    """The split of what is called `name`."""
    fraction = hash_fraction(name)
    if fraction >= HELD_OUT_SHARE + DEV_SHARE:
        return "train"
    return "heldout" if fraction < HELD_OUT_SHARE else "dev"


def write_translations(
    out_dir: Path,
    rows: Iterable[tuple[Side, tuple[Any, ...]]],
    source: Source,
    limits: Limits,
    order: Callable[[list[Any]], None],
    schema: pa.Schema = SCHEMA,
) -> CorpusFiles:
    """Write the rows, each with its split, as train, heldout and dev, and `source` with their counts as source.json.

    Of rows with the same texts and languages the first is written. A held-out row is left out where one of its texts
    has the letters of a text for training; a row of dev also where it has those of a held-out one.

    Args:
        out_dir: folder of the files
        rows: (split, values in the order of `schema`, the two texts first)
        source: what the corpus is made of
        limits: most rows of each file
        order: sorts or shuffles the rows of a file in place
        schema: the columns, those of TowerBlocks first

    Raises:
        UserError: there is no row for training
    """
    sides: dict[Side, list[Any]] = {side: [] for side in SIDES}
    for side, row in rows:
        sides[side].append(row)
    seen: set[str] = set()
    for side in SIDES:
        first: dict[tuple[Any, ...], Any] = {}
        for row in sides[side]:
            first.setdefault(row[: len(SCHEMA)], row)
        unseen = [row for row in first.values() if side == "train" or seen.isdisjoint(_letters(row))]
        seen.update(*map(_letters, unseen))
        limit = getattr(limits, side)
        if limit is not None and limit < len(unseen):
            unseen = random.Random(f"{side} {limit}").sample(unseen, limit)
        order(unseen)
        sides[side] = unseen
    if not sides["train"]:
        raise UserError(f"no translation of {source.corpus} is left with these settings: allow more words or pairs")
    files = write_corpus(out_dir, sides["train"], sides["heldout"], sides["dev"], schema)
    counts = {side: _counts(sides[side]) for side in SIDES}
    write_json(out_dir / SOURCE_NOTE, asdict(source) | {"rows": counts}, indent=2)
    return files


def _letters(row: Sequence[Any]) -> set[str]:
    return {letters_of(text) for text in row[:2]}


def _counts(rows: Sequence[Any]) -> dict[str, int]:
    return dict(sorted(Counter(f"{row[2]}-{row[3]}" for row in rows).items()))
