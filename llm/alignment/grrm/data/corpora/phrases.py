"""The `phrases` corpus: dates, times, money, measures, durations, percentages and places, worded in two languages.

The wording is Unicode CLDR's (see `cldr`), so both sides were written by people; the content is drawn at random,
so there is as much of it as one likes.

Held-out rows are made only of values (days, amounts, lists of places...) that are drawn for no training row of this or
any other build, and none of their texts is a training row's text or stands inside one: no "May 28" whose date of some
year is in the training rows.

Rows for development are held out in
the same way, from the training rows and from the other held-out ones: what is chosen on them is not chosen on those.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from tqdm import tqdm

from grrm.data.corpora.cldr import LANGUAGES
from grrm.data.corpora.kinds import combined, dates, quantities, territories
from grrm.data.corpora.pairs import CorpusFiles, SeenTexts, language_pairs, unseen, write_corpus
from grrm.data.corpora.phrase import Draws, Phrase, Side
from grrm.data.parquet import TranslationRow
from grrm.errors import UserError

KINDS: dict[str, tuple[Callable[[Draws], Phrase], int]] = {
    "date": (dates.date, 10),
    "month": (dates.month, 5),
    "span": (dates.span, 6),
    "time": (dates.time, 4),
    "moment": (dates.moment, 8),
    "money": (quantities.money, 11),
    "measure": (quantities.measure, 12),
    "duration": (quantities.duration, 8),
    "relative_time": (quantities.relative_time, 3),
    "percentage": (quantities.percentage, 1),
    "places": (territories.territories, 14),
    "entry": (combined.entry, 8),
    "caption": (combined.caption, 6),
    "share": (combined.share, 4),
    "pair": (combined.pair, 6),
}
MOST_REJECTED_IN_A_ROW = 2_000


def build_phrases(
    out_dir: Path,
    train_rows: int = 40_000,
    heldout_rows: int = 1_000,
    languages: Sequence[str] = LANGUAGES,
    seed: int = 0,
    pairs: str = "hub",
    dev_rows: int = 0,
) -> CorpusFiles:
    """Write `train.parquet`, `heldout.parquet` and, where rows of it are asked for, `dev.parquet` into `out_dir`.

    All in the TowerBlocks-MT schema; the three share neither a value nor a text.

    The same arguments give the same rows. Every row has a random ordered pair of `languages`: with English on one
    side (`pairs="hub"`) or any two (`"all"`). Raises UserError for fewer than one row, languages that cannot be
    paired, or more rows than there are different phrases.
    """
    for name, count in (("train_rows", train_rows), ("heldout_rows", heldout_rows)):
        if count < 1:
            raise UserError(f"{name} is {count}; ask for at least one row")
    ordered_pairs = language_pairs(languages, pairs)
    train = _take(phrase_rows(ordered_pairs, seed, "train"), train_rows, "train phrases")
    heldout = _unseen_rows(ordered_pairs, seed, "heldout", train, heldout_rows)
    dev = _unseen_rows(ordered_pairs, seed, "dev", [*train, *heldout], dev_rows) if dev_rows else []
    return write_corpus(out_dir, train, heldout, dev)


def _unseen_rows(
    ordered_pairs: Sequence[tuple[str, str]], seed: int, side: Side, others: Sequence[TranslationRow], n_rows: int
) -> list[TranslationRow]:
    """Rows of a held-out side whose texts do not occur in the `others`."""
    return _take(unseen(phrase_rows(ordered_pairs, seed, side), SeenTexts(others)), n_rows, f"{side} phrases")


def phrase_rows(ordered_pairs: Sequence[tuple[str, str]], seed: int, side: Side) -> Iterator[TranslationRow]:
    """Different rows of one side of the split without end, or until `MOST_REJECTED_IN_A_ROW` draws bring nothing new.

    A draw is rejected when a language has a gap, when both sides read the same (nothing to translate), or when the
    row came before.
    """
    rng = random.Random(f"{seed} {side}")
    draws = Draws(rng, side)
    makers, weights = zip(*KINDS.values(), strict=True)
    seen: set[TranslationRow] = set()
    rejected = 0
    while rejected < MOST_REJECTED_IN_A_ROW:
        phrase = rng.choices(makers, weights)[0](draws)
        row = _row(phrase, *rng.choice(ordered_pairs))
        if row is None or row in seen:
            rejected += 1
            continue
        rejected = 0
        seen.add(row)
        yield row


def _row(phrase: Phrase, src_lang: str, trg_lang: str) -> TranslationRow | None:
    src_text, trg_text = phrase.render(src_lang), phrase.render(trg_lang)
    if src_text is None or trg_text is None or src_text == trg_text:
        return None
    return TranslationRow(src_text, trg_text, src_lang, trg_lang)


def _take(rows: Iterator[TranslationRow], n_rows: int, what: str) -> list[TranslationRow]:
    selected = list(tqdm(islice(rows, n_rows), total=n_rows, desc=what, unit="row", disable=None))
    if len(selected) < n_rows:
        raise UserError(
            f"only {len(selected)} different {what} were found where {n_rows} were asked for; ask for fewer rows"
        )
    return selected
