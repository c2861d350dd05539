"""Language names as the judge and translation prompts spell them, and the identifiers of candidates."""

from __future__ import annotations

import re
from string import ascii_uppercase

from grrm.errors import UserError

LANG_NAMES: dict[str, str] = {
    "en": "English",
    "zh": "Chinese",
    "de": "German",
    "ru": "Russian",
    "ko": "Korean",
    "ja": "Japanese",
    "fr": "French",
    "es": "Spanish",
    "pt": "Portuguese",
    "it": "Italian",
    "nl": "Dutch",
    "th": "Thai",
    "ro": "Romanian",
    "ar": "Arabic",
    "el": "Greek",
    "vi": "Vietnamese",
    "uk": "Ukrainian",
}
LANG_CODES: dict[str, str] = {name: code for code, name in LANG_NAMES.items()}

# The order matters: seeded augmentation draws from this list.
TOWER_LANGS: tuple[str, ...] = ("en", "de", "fr", "nl", "it", "es", "pt", "ko", "ru", "zh")

_NO_NAME = re.compile(r"[<>|\[\]{}`#*~:｜＜＞]|.{65}")  # signs that prompts and chat templates are made of

CANDIDATE_IDS: tuple[str, ...] = tuple(ascii_uppercase)
MAX_CANDIDATES_TRAINED = 8  # released judges have seen A to H at most


def display_name(lang: str) -> str:
    """The English name that a prompt uses for `lang`, a tag of BCP 47 or FLORES, an ISO 639 code or a name.

    `LANG_NAMES` and their names need no table; all others are looked up in CLDR, see `grrm.gqm.language_tags`. Raises
    UserError with the nearest name for a language that is unknown, and for a name that could be taken for more than
    one: the prompt has it in a sentence.
    """
    if lang in LANG_NAMES:
        return LANG_NAMES[lang]
    if lang in LANG_CODES:
        return lang
    if not could_be_name(lang):
        raise UserError(
            f"Language name {lang[:40]!r} is not a name: use at most 64 printable characters without the signs of "
            "markup and chat templates, such as < > | : ` #."
        )
    from grrm.gqm.language_tags import resolve

    name = resolve(lang)
    if isinstance(name, UserError):
        raise name
    return name


def could_be_name(lang: str) -> bool:
    """True for at most 64 printable characters without the signs that prompts and chat templates are made of."""
    return _NO_NAME.search(lang) is None and lang.isprintable()


def language_pair(src_lang: str, trg_lang: str) -> str:
    """A name for a pair of languages that is the same for codes and display names: "en-de"."""
    return f"{language_code(src_lang)}-{language_code(trg_lang)}"


def language_code(lang: str) -> str:
    """The two-letter code of a language of `LANG_NAMES` by any of its codes or names; any other string as it is."""
    if lang in LANG_NAMES:
        return lang
    if lang not in LANG_CODES and could_be_name(lang):
        from grrm.gqm.language_tags import resolve

        return LANG_CODES.get(str(resolve(lang)), lang)
    return LANG_CODES.get(lang, lang)
