"""The `homeassistant` corpus: texts of Home Assistant's interface with the translations of its volunteers."""

from __future__ import annotations

import json
import random
import re
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tqdm import tqdm

from grrm.data.corpora.pairs import CorpusFiles
from grrm.data.corpora.phrase import Side
from grrm.data.corpora.translations import ALL_ROWS, Limits, Source, letters_of, split_of, write_translations
from grrm.data.downloads import Wheel, downloaded_wheel, sha256_of
from grrm.data.parquet import TranslationRow
from grrm.errors import UserError

# Its files are the same for every Python; pip would look at the Python that it says it needs.
WHEEL = Wheel(
    "homeassistant==2025.3.4",
    "48e8d5bfea0f77a2df52cd11daef3e0d9c75a8f26a3d5002d0e35ae396b14be0",
    ("--python-version", "3.13", "--implementation", "py"),
)
_FILE = re.compile(r"homeassistant/components/([^/]+)/translations/([\w-]+)\.json")
_LOCALES = {"zh": "zh-Hans", "pt": "pt-BR"}
_PLACEHOLDER = re.compile(r"\{[\w.]+\}")
_MARKUP = re.compile(r"[{}\[\]<>`|*\n]|https?://")

Texts = dict[str, dict[str, str]]  # language -> key of the interface -> text


def build_homeassistant(
    out_dir: Path,
    pairs: Sequence[tuple[str, str]],
    wheel: Path | None = None,
    min_words: int = 4,
    max_words: int = 25,
    keep_placeholders: bool = False,
    limits: Limits = ALL_ROWS,
    seed: int = 0,
) -> CorpusFiles:
    """Write the texts of `min_words` to `max_words` English words, and where they come from, into `out_dir`.

    One translation per English text and language, the most frequent of people's. Texts with markup, links, several
    lines or references to other texts are left out; so are those with placeholders such as {name}, unless they are
    kept and both sides have the same ones. The same arguments give the same rows.

    Args:
        out_dir: folder of the parquet files
        pairs: (source, target) of each pair of languages; both sides are translations of the same English text
        wheel: Home Assistant's wheel, any version; None downloads the pinned one
        min_words: fewest blank-separated words of the English text
        max_words: most of them
        keep_placeholders: keep texts with placeholders
        limits: most rows of each file
        seed: of the order of the rows

    Raises:
        UserError: the wheel cannot be had or read, or nothing is left
    """
    origin = "a wheel of Home Assistant's" if wheel else f"https://pypi.org/project/homeassistant ({WHEEL.requirement})"
    with nullcontext(wheel) if wheel else downloaded_wheel(WHEEL) as path:
        languages = {"en"}.union(*pairs)
        texts = read_texts(path, languages)
        files = {path.name: sha256_of(path)}
    settings = {"min_words": min_words, "max_words": max_words, "keep_placeholders": keep_placeholders, "seed": seed}
    source = Source("homeassistant", "Apache-2.0", origin, files, settings)
    usable = {
        key: text
        for key, text in texts["en"].items()
        if min_words <= len(text.split()) <= max_words and is_plain(text, keep_placeholders)
    }
    translations = {language: most_frequent(usable, texts[language]) for language in sorted(languages - {"en"})}
    rows = _rows(sorted(set(usable.values())), translations, pairs)
    return write_translations(out_dir, rows, source, limits, random.Random(seed).shuffle)


def read_texts(wheel: Path, languages: Collection[str]) -> Texts:
    """The texts of each language by the path of their key, blanks at the ends removed.

    Raises UserError for a file that is no such wheel.
    """
    texts: Texts = {language: {} for language in languages}
    codes = {_LOCALES.get(language, language): language for language in languages}
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in tqdm(sorted(archive.namelist()), desc="Home Assistant", unit="file", disable=None):
                match = _FILE.fullmatch(name)
                if match and match[2] in codes:
                    flat = _flat(json.loads(archive.read(name)), match[1])
                    texts[codes[match[2]]].update(flat)
    except (OSError, zipfile.BadZipFile, zlib.error, ValueError) as error:
        raise UserError(
            f"'{wheel}' is not a readable wheel of Home Assistant ({error}): give another with --from"
        ) from error
    for language, of_language in texts.items():
        if not of_language:
            raise UserError(f"'{wheel}' has no texts in {language}: leave out the pairs with it, or give another wheel")
    return texts


def _flat(tree: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{path}/{key}")
        elif isinstance(value, str):
            yield f"{path}/{key}", value.strip()


def is_plain(text: str, keep_placeholders: bool) -> bool:
    """True if `text` is one line without markup and references, and has placeholders only where they are kept."""
    return not _MARKUP.search(_PLACEHOLDER.sub("", text) if keep_placeholders else text)


def most_frequent(english: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    """English text -> its most frequent translation, of those by key that differ from it and keep its placeholders."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for key, text in english.items():
        translation = other.get(key, "")
        is_translated = letters_of(translation) not in ("", letters_of(text))
        if is_translated and is_plain(translation, True) and _placeholders(translation) == _placeholders(text):
            counts[text][translation] += 1
    return {text: translations.most_common(1)[0][0] for text, translations in counts.items()}


def _placeholders(text: str) -> list[str]:
    return sorted(_PLACEHOLDER.findall(text))


def _rows(
    english: Sequence[str], translations: Mapping[str, Mapping[str, str]], pairs: Sequence[tuple[str, str]]
) -> Iterator[tuple[Side, TranslationRow]]:
    for text in english:
        side = split_of(f"english:{letters_of(text)}")
        for source, target in pairs:
            sides = [text if language == "en" else translations[language].get(text) for language in (source, target)]
            if sides[0] and sides[1]:
                yield side, TranslationRow(sides[0], sides[1], source, target)
