"""The common parts of corpus builders: language pairs, the pair of output files, the check that nothing leaks."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from grrm.data.corpora.cldr import locale_of
from grrm.data.parquet import SCHEMA, TranslationRow, write_rows
from grrm.errors import UserError

_WORD = "0-9A-Za-z\u00c0-\u024f\u0400-\u04ff"  # digits, Latin and Cyrillic letters
SOURCE_NOTE = "source.json"


@dataclass(frozen=True, slots=True)
class CorpusFiles:
    """The parquet files of a corpus and their numbers of rows; `dev` is not there where its number is 0."""

    train: Path
    heldout: Path
    dev: Path
    n_train: int
    n_heldout: int
    n_dev: int


def language_pairs(languages: Sequence[str], pairs: str) -> list[tuple[str, str]]:
    """Ordered (source, target) pairs: with English on one side ("hub"), or any two ("all").

    Raises UserError for fewer than two languages, a language outside the ten, a repeated one, or a hub without English.
    """
    if len(languages) < 2 or len(set(languages)) != len(languages):
        raise UserError(f"languages {', '.join(languages) or '(none)'} must be at least two different ones")
    for language in languages:
        locale_of(language)
    ordered = list(itertools.permutations(languages, 2))
    if pairs == "hub":
        if "en" not in languages:
            raise UserError(f"languages {', '.join(languages)} lack en; add it or ask for pairs 'all'")
        ordered = [pair for pair in ordered if "en" in pair]
    return ordered


def write_corpus(
    out_dir: Path,
    train: Sequence[tuple[Any, ...]],
    heldout: Sequence[tuple[Any, ...]],
    dev: Sequence[tuple[Any, ...]] = (),
    schema: pa.Schema = SCHEMA,
) -> CorpusFiles:
    """Write `train.parquet`, `heldout.parquet` and, unless it has no rows, `dev.parquet`, each atomically.

    The note of an earlier corpus' source and licence is removed.
    """
    train_file, heldout_file, dev_file = (out_dir / f"{name}.parquet" for name in ("train", "heldout", "dev"))
    write_rows(heldout_file, heldout, schema)  # first, as it says where nothing can be written
    (out_dir / SOURCE_NOTE).unlink(missing_ok=True)
    if dev:
        write_rows(dev_file, dev, schema)
    else:
        dev_file.unlink(missing_ok=True)  # an earlier corpus' rows, which may be for training now
    write_rows(train_file, train, schema)
    return CorpusFiles(train_file, heldout_file, dev_file, len(train), len(heldout), len(dev))


class SeenTexts:
    """Every text of either side of some rows, and whether another text stands among them or inside one of them.

    A text stands inside another where neither of its ends cuts a word or a number: "May 28" in "May 28, 2031", but
    not "5 miles" in "15 miles". Scripts without blanks have no words to cut.
    """

    def __init__(self, rows: Iterable[TranslationRow]) -> None:
        texts = set(itertools.chain.from_iterable((row.src_text, row.trg_text) for row in rows))
        self._joined = "\n".join(sorted(texts))

    def __contains__(self, text: str) -> bool:
        if text not in self._joined:  # nearly always, and much faster than the pattern
            return False
        pattern = rf"(?<![{_WORD}]){re.escape(text)}(?![{_WORD}])"
        return re.search(pattern, self._joined) is not None


def unseen(rows: Iterable[TranslationRow], seen: SeenTexts) -> Iterator[TranslationRow]:
    """The rows neither of whose texts was seen, on its own or inside a longer text, in any language."""
    return (row for row in rows if row.src_text not in seen and row.trg_text not in seen)
