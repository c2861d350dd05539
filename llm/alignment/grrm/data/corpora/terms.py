"""The `terms` corpus: names from Unicode CLDR and the texts of Django's interface, as translated by people.

An entry is one English term with its translations. Entries with the same English text are one entry, whichever
catalogue they come from, and a whole entry is either trained on or held out, in all of its languages.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import polib
from tqdm import tqdm

from grrm.data.corpora.cldr import LANGUAGES, locale_of, tidy
from grrm.data.corpora.pairs import CorpusFiles, SeenTexts, language_pairs, unseen, write_corpus
from grrm.data.corpora.phrase import place_of
from grrm.data.parquet import TranslationRow
from grrm.errors import UserError

Entry = dict[str, str]  # language -> text; always has "en"

HELD_OUT_SHARE = 0.06
_DJANGO_LOCALES = {"pt": "pt_BR", "zh": "zh_Hans"}  # CLDR's pt and zh are these too
_PLACEHOLDER = re.compile(r"%[(\w%]|[{}<>\n\\]|https?:")
_SCRIPTS = {
    "ko": re.compile(r"[\uac00-\ud7a3]"),
    "ru": re.compile(r"[\u0400-\u04ff]"),
    "zh": re.compile(r"[\u4e00-\u9fff]"),
}


def build_terms(
    out_dir: Path,
    train_rows: int | None = None,
    heldout_rows: int | None = 1_000,
    languages: Sequence[str] = LANGUAGES,
    seed: int = 0,
    pairs: str = "hub",
) -> CorpusFiles:
    """Write `train.parquet` and `heldout.parquet` (TowerBlocks-MT schema) into `out_dir`.

    Every entry gives a row for every ordered pair of languages it has; a number of rows limits them to a random
    choice, None takes all. The same arguments give the same rows. Raises UserError for languages that cannot be
    paired, or a number below one.
    """
    for name, count in (("train_rows", train_rows), ("heldout_rows", heldout_rows)):
        if count is not None and count < 1:
            raise UserError(f"{name} is {count}; ask for at least one row, or give no number for all")
    ordered_pairs = language_pairs(languages, pairs)
    sides: tuple[list[Entry], list[Entry]] = ([], [])
    for entry in term_entries():
        sides[place_of(f"term:{entry['en'].casefold()}") < HELD_OUT_SHARE].append(entry)
    train = _rows(sides[0], ordered_pairs, seed, train_rows)
    # A held-out term may still read like a trained one in another language ("Mode" and "Modus" in German).
    seen = SeenTexts(_pair_rows(sides[0], ordered_pairs))
    heldout = list(unseen(_rows(sides[1], ordered_pairs, seed, None), seen))[:heldout_rows]
    return write_corpus(out_dir, train, heldout)


def term_entries() -> list[Entry]:
    """All entries in the ten languages, de-duplicated by their English text (letter case aside)."""
    merged: dict[str, Entry] = {}
    for entry in chain(_cldr_entries(), _django_entries()):
        key = entry["en"].casefold()
        merged[key] = entry | merged.get(key, {})
    return [entry for entry in merged.values() if len(entry) > 1]


def _rows(
    entries: Iterable[Entry], ordered_pairs: Sequence[tuple[str, str]], seed: int, limit: int | None
) -> list[TranslationRow]:
    rows = list(dict.fromkeys(_pair_rows(entries, ordered_pairs)))
    random.Random(seed).shuffle(rows)
    return rows[:limit]


def _pair_rows(entries: Iterable[Entry], ordered_pairs: Sequence[tuple[str, str]]) -> Iterator[TranslationRow]:
    for entry in entries:
        for src, trg in ordered_pairs:
            if src in entry and trg in entry and entry[src] != entry[trg]:
                yield TranslationRow(entry[src], entry[trg], src, trg)


def _cldr_entries() -> Iterator[Entry]:
    for attribute in ("territories", "languages", "scripts", "currencies"):
        names = {language: getattr(locale_of(language), attribute) for language in LANGUAGES}
        for code in sorted(names["en"]):
            texts = {language: names[language].get(code, code) for language in LANGUAGES}
            yield from _entry({language: text for language, text in texts.items() if text != code})


def _django_entries() -> Iterator[Entry]:
    catalogues = sorted(folder for folder in _django_folder().glob("**/locale") if (folder / "en").is_dir())
    for folder in tqdm(catalogues, desc="Django catalogues", unit="app", disable=None):
        for name in ("django.po", "djangojs.po"):
            yield from _catalogue_entries(folder, name)


def _catalogue_entries(folder: Path, name: str) -> Iterator[Entry]:
    texts: dict[tuple[str, str], Entry] = {}
    for language in LANGUAGES:
        path = folder / _DJANGO_LOCALES.get(language, language) / "LC_MESSAGES" / name
        if not path.is_file():
            continue
        for message in polib.pofile(str(path)):
            if message.msgid_plural or message.obsolete or message.fuzzy:
                continue
            entry = texts.setdefault((message.msgctxt or "", message.msgid), {"en": message.msgid})
            if message.msgstr:
                entry[language] = message.msgstr
    for entry in texts.values():
        yield from _entry(entry)


def _django_folder() -> Path:
    """Where Django's files are; it need not be imported for its catalogues to be read."""
    spec = find_spec("django")
    if spec is None or spec.origin is None:
        raise UserError("Django, whose catalogues the terms corpus is made of, is not installed; pip install django")
    return Path(spec.origin).parent


def _entry(texts: Entry) -> Iterator[Entry]:
    """The entry without its gaps: no text with a placeholder or markup, none left in Latin letters by oversight.

    Yields nothing when no English text of two letters or more remains (one is a compass point or a format character).
    """
    clean = {language: tidy(text) for language, text in texts.items() if not _PLACEHOLDER.search(text)}
    if sum(letter.isalpha() for letter in clean.get("en", "")) > 1:
        yield {
            language: text
            for language, text in clean.items()
            if language not in _SCRIPTS or _SCRIPTS[language].search(text) is not None
        }
