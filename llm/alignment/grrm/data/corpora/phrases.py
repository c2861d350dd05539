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
from functools import partial
from itertools import islice
from pathlib import Path

from tqdm import tqdm

from grrm.data.corpora import cldr, dates, quantities
from grrm.data.corpora.cldr import LANGUAGES
from grrm.data.corpora.pairs import CorpusFiles, SeenTexts, language_pairs, unseen, write_corpus
from grrm.data.corpora.phrase import Draws, Phrase, Side
from grrm.data.parquet import TranslationRow
from grrm.errors import UserError


def entry(draws: Draws) -> Phrase:
    """A line of a table: a place and a figure, or a month and a figure."""
    figure = draws.rng.choice((quantities.money, _measure_of_territory, quantities.percentage))(draws)
    label = _territory(draws) if draws.rng.random() < 0.7 else dates.month(draws)
    return _both(label, figure, cldr.labelled)


def caption(draws: Draws) -> Phrase:
    """A place with a date in brackets."""
    when = draws.rng.choice((dates.date, dates.month))(draws)
    return _both(_territory(draws), when, cldr.bracketed)


def share(draws: Draws) -> Phrase:
    """An amount or measure with its percentage in brackets."""
    amount = draws.rng.choice((quantities.money, quantities.measure))(draws)
    return _both(amount, quantities.percentage(draws), cldr.bracketed)


def pair(draws: Draws) -> Phrase:
    """Two amounts, two percentages, or two measures of one dimension, joined by "and" or "or"."""
    unit = draws.rng.choice(quantities.UNITS)
    same_dimension = [other for other in quantities.UNITS if other.split("-")[0] == unit.split("-")[0]]
    measure = partial(quantities.measure, units=same_dimension)
    kind = draws.rng.choice((quantities.money, measure, measure, quantities.percentage))
    return _both(kind(draws), kind(draws), partial(_list_of_two, draws.rng.choice(("standard", "or"))))


def _territory(draws: Draws) -> Phrase:
    """A territory alone carries no content of its own: the same ones are named on both sides of the split."""
    return Phrase((), partial(cldr.territory, draws.rng.choice(TERRITORIES)))


def _measure_of_territory(draws: Draws) -> Phrase:
    return quantities.measure(draws, quantities.TERRITORY_UNITS)


def _list_of_two(style: str, first: str, second: str, language: str) -> str:
    return cldr.joined((first, second), language, style)


def _both(first: Phrase, second: Phrase, compose: Compose) -> Phrase:
    return Phrase(first.content + second.content, partial(_both_text, first, second, compose))


def _both_text(first: Phrase, second: Phrase, compose: Compose, language: str) -> str | None:
    first_text, second_text = first.render(language), second.render(language)
    return None if first_text is None or second_text is None else compose(first_text, second_text, language)


# fmt: off
TERRITORIES = (
    "AD", "AE", "AF", "AL", "AM", "AO", "AR", "AT", "AU", "AZ", "BD", "BE", "BG", "BO", "BR", "BY", "CA", "CH",
    "CL", "CM", "CN", "CO", "CR", "CU", "CY", "CZ", "DE", "DK", "DO", "DZ", "EC", "EE", "EG", "ES", "ET", "FI",
    "FR", "GB", "GE", "GH", "GL", "GR", "GT", "HN", "HR", "HT", "HU", "ID", "IE", "IL", "IN", "IQ", "IR", "IS",
    "IT", "JM", "JO", "JP", "KE", "KG", "KH", "KR", "KW", "KZ", "LA", "LB", "LK", "LT", "LU", "LV", "LY", "MA",
    "MD", "ME", "MG", "MK", "MN", "MT", "MX", "MY", "MZ", "NG", "NI", "NL", "NO", "NP", "NZ", "PA", "PE", "PH",
    "PK", "PL", "PT", "PY", "QA", "RO", "RS", "RU", "SA", "SD", "SE", "SG", "SI", "SK", "SN", "SY", "TH", "TN",
    "TR", "TZ", "UA", "UG", "US", "UY", "UZ", "VE", "VN", "YE", "ZA", "ZM", "ZW",
)
# fmt: on


def territories(draws: Draws) -> Phrase:
    """Two to four territories joined by "and" or "or"; the same ones in another order are the same content."""
    codes, name = draws.pick(_any_territories, lambda codes: "places:" + " ".join(sorted(codes)))
    style = draws.rng.choice(("standard", "standard", "or"))
    return Phrase((name,), partial(_list_text, codes, style))


def _list_text(codes: tuple[str, ...], style: str, language: str) -> str | None:
    names = [name for code in codes if (name := cldr.territory(code, language)) is not None]
    return cldr.joined(names, language, style) if len(names) == len(codes) else None


def _any_territories(rng: random.Random) -> tuple[str, ...]:
    return tuple(rng.sample(TERRITORIES, rng.choice((2, 2, 3, 3, 4))))


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
    "places": (territories, 14),
    "entry": (entry, 8),
    "caption": (caption, 6),
    "share": (share, 4),
    "pair": (pair, 6),
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
    if dev_rows < 0:
        raise UserError(f"dev_rows is {dev_rows}; ask for at least one row, or for 0 to have none")
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


Compose = Callable[[str, str, str], str]
