"""What the corpus builders share: language pairs, the pair of output files, the check that nothing leaks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grrm.data.corpora.cldr import locale_of
from grrm.data.parquet import TranslationRow, write_rows
from grrm.errors import UserError

PAIRS = ("hub", "all")


@dataclass(frozen=True, slots=True)
class CorpusFiles:
    """The two parquet files of a corpus and their numbers of rows."""

    train: Path
    heldout: Path
    n_train: int
    n_heldout: int


def language_pairs(languages: Sequence[str], pairs: str = "hub") -> list[tuple[str, str]]:
    """Ordered (source, target) pairs: with English on one side ("hub"), or any two ("all").

    Raises UserError for fewer than two languages, a language outside the ten, a repeated one, or a hub without English.
    """
    if pairs not in PAIRS:
        raise UserError(f"pairs {pairs!r} is not a choice; use {' or '.join(PAIRS)}")
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


def write_corpus(out_dir: Path, train: Sequence[TranslationRow], heldout: Sequence[TranslationRow]) -> CorpusFiles:
    """Write `train.parquet` and `heldout.parquet` into `out_dir`, each atomically."""
    files = CorpusFiles(out_dir / "train.parquet", out_dir / "heldout.parquet", len(train), len(heldout))
    write_rows(files.heldout, heldout)
    write_rows(files.train, train)
    return files


def texts_of(rows: Iterable[TranslationRow]) -> set[str]:
    """Every text of either side."""
    return set(itertools.chain.from_iterable((row.src_text, row.trg_text) for row in rows))


def unseen(rows: Iterable[TranslationRow], seen_texts: set[str]) -> Iterator[TranslationRow]:
    """The rows neither of whose texts was seen, in any language."""
    return (row for row in rows if row.src_text not in seen_texts and row.trg_text not in seen_texts)
