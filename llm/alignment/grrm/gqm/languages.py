"""Language names as the judge and translation prompts spell them, and the identifiers of candidates.

Beyond `LANG_NAMES`, names of BCP 47 and FLORES tags, ISO 639-3 codes and other spellings are those of Unicode CLDR, in
the package `babel`. A script or a region is part of the name where the tag says more than the language alone:
`deu_Latn` is German, `fr_FR` French, `pt_BR` Brazilian Portuguese, `pt_AO` Portuguese (Angola), `zh_TW` Traditional
Chinese, `srp_Latn` Serbian (Latin).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from string import ascii_uppercase
from typing import Any

from grrm.errors import UserError, nearest_name

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

    `LANG_NAMES` and their names need no table; all others are looked up in CLDR. Raises
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

    name = resolve(lang)
    if isinstance(name, UserError):
        raise name
    return name


def could_be_name(lang: str) -> bool:
    """True for at most 64 printable characters without the signs that prompts and chat templates are made of."""
    return _NO_NAME.search(lang) is None and lang.isprintable()


def language_pair(src_lang: str, trg_lang: str) -> str:
    """A name for a pair of languages that is the same for all tags and names of them: "en-de", "en-pt_BR"."""
    return f"{_cldr_code(src_lang)}-{_cldr_code(trg_lang)}"


@lru_cache(maxsize=4096)
def _cldr_code(lang: str) -> str:
    """CLDR's code of the language's name; a name without one, or an unknown language, as it is."""
    code = language_code(lang)
    if code in LANG_NAMES or not could_be_name(lang):
        return code
    name = resolve(lang)
    return lang if isinstance(name, UserError) else _codes().get(name, name)


def language_code(lang: str) -> str:
    """The two-letter code of a language of `LANG_NAMES` by any of its codes or names; any other string as it is."""
    if lang in LANG_NAMES:
        return lang
    if lang not in LANG_CODES and could_be_name(lang):
        return LANG_CODES.get(str(resolve(lang)), lang)
    return LANG_CODES.get(lang, lang)


@lru_cache(maxsize=4096)
def base_code(lang: str) -> str:
    """The code of a language without script and region, zh for zho_Hant and Traditional Chinese; a name without one."""
    tag = _TAG.fullmatch(lang.strip())
    base = _base(tag["extended"] or tag["language"]) if tag else None
    if base is not None:
        return base.split("_")[0]
    name = resolve(lang) if could_be_name(lang) else lang
    words = lang.split() if isinstance(name, UserError) else name.split()
    return next((LANG_CODES[word] for word in words if word in LANG_CODES), lang)


_TAG = re.compile(
    r"(?P<language>[a-z]{2,3})(?:[-_](?P<extended>[a-z]{3}))?(?:[-_](?P<script>[a-z]{4}))?"
    r"(?:[-_](?P<region>[a-z]{2}|\d{3}))?(?:[-_.@][a-z0-9]+)*[-_.@]?",
    re.IGNORECASE,
)
_QUALIFIED = re.compile(r"(.+) \([^()]+\)")  # Chinese (Simplified)
# Languages of FLORES that CLDR has no name for, with the script that they are written in most; Tagalog is its Filipino.
_UNNAMED = {
    "acm": ("Mesopotamian Arabic", "Arab"),
    "acq": ("Ta'izzi-Adeni Arabic", "Arab"),
    "ajp": ("South Levantine Arabic", "Arab"),
    "apc": ("North Levantine Arabic", "Arab"),
    "azb": ("South Azerbaijani", "Arab"),
    "cjk": ("Chokwe", "Latn"),
    "fuv": ("Nigerian Fulfulde", "Latn"),
    "hne": ("Chhattisgarhi", "Deva"),
    "kbp": ("Kabiyè", "Latn"),
    "pbt": ("Southern Pashto", "Arab"),
    "quy": ("Ayacucho Quechua", "Latn"),
    "taq": ("Tamasheq", "Latn"),
    "tgl": ("Tagalog", "Latn"),
    "tl": ("Tagalog", "Latn"),
}
_OTHER_NAMES = {"castilian": "Spanish", "farsi": "Persian", "mandarin": "Chinese"}
_SPECIAL = {"cmn": "zh", "no": "no", "nor": "no"}  # before CLDR's aliases: its Norwegian is Bokmål
_SAME_SCRIPT = {"Hang": "Kore"}
_NO_LANGUAGE = {"mul", "und", "zxx", "mis"}


@lru_cache(maxsize=4096)
def resolve(lang: str) -> str | UserError:
    """The English name of a tag or a name in any spelling, a name's own name being itself; else the error to raise.

    Names are tried before codes, which are three letters too: Ewe is one. A name with a known one at its beginning or
    end (Swiss Romansh), or of letters beyond ASCII, is taken as it is.
    """
    text = lang.strip()
    by_fold = _names()
    name = by_fold.get(text.casefold())
    if name == text:
        return name
    tag = _TAG.fullmatch(text)
    named = _name_of_tag(tag, text) if tag else None
    if named is not None:
        return named
    if name is not None:
        return name
    words = text.casefold().split(" ")
    qualified = _QUALIFIED.fullmatch(text)
    if qualified and qualified[1].casefold() in by_fold:
        return text
    if text.casefold() in (own := _own_names()):
        return own[text.casefold()]
    if not text.isascii() or (len(words) > 1 and (words[0] in by_fold or words[-1] in by_fold)):
        return text
    near = nearest_name(text.casefold(), by_fold)
    advice = f"did you mean {by_fold[near]!r}?" if near else "give its English name, or a code such as de or pt-BR."
    return UserError(f"unknown language {lang[:40]!r}: {advice}")


def _name_of_tag(tag: re.Match[str], text: str) -> str | UserError | None:
    """None where the language is unknown."""
    language = _base(tag["extended"] or tag["language"])
    if language is None:
        return None
    script = tag["script"].title() if tag["script"] else None
    region = tag["region"].upper() if tag["region"] else None
    base, *implied = language.split("_")
    part: str | None
    for part in implied:  # `sh` is sr_Latn, `prs` fa_AF
        script, region = (script or part, region) if len(part) == 4 else (script, region or part)
    english = _english()
    for noun, part, parts in (("script", script, english.scripts), ("region", region, english.territories)):
        if part is not None and part not in parts:
            return UserError(f"unknown {noun} {part!r} in the language {text[:40]!r}: did you mean {base!r}?")
    return _combined(base, script, region)


def _combined(base: str, script: str | None, region: str | None) -> str:
    english = _english()
    name = _UNNAMED[base][0] if base in _UNNAMED else english.languages[base]
    usual_script, usual_region = _usual(base)
    if script is None and region is not None:
        script = _usual(f"{base}_{region}")[0]
        if script == usual_script:
            script = None
    elif script is not None and region is None and f"{base}_{script}" in english.languages:
        return str(english.languages[f"{base}_{script}"])
    if _SAME_SCRIPT.get(script or "", script) == usual_script:
        script = None
    details = []
    if script is not None:
        usual_region = _usual(f"{base}_{script}")[1] or usual_region
        if f"{base}_{script}" in english.languages:
            name = english.languages[f"{base}_{script}"]
        else:
            details.append(english.scripts[script])
    if region is not None:
        if f"{base}_{region}" in english.languages:
            name = english.languages[f"{base}_{region}"]
        elif region != usual_region:
            details.append(english.territories[region].removesuffix(" SAR China"))
    return f"{name} ({', '.join(details)})" if details else str(name)


def _usual(tag: str) -> tuple[str | None, str | None]:
    """Script and region that CLDR supposes for a language, or for one in a script or region."""
    from babel.core import get_global

    if tag in _UNNAMED:
        return _UNNAMED[tag][1], None
    likely = get_global("likely_subtags").get(tag)
    if likely is None:
        return None, None
    _, script, region = likely.split("_")[:3]
    return script, region


def _base(code: str) -> str | None:
    """The code that a language has in CLDR, maybe with a script or region; None where it is none."""
    from babel.core import get_global

    code = code.lower()
    if code in _UNNAMED:
        return code
    names = _english().languages
    other = _SPECIAL.get(code) or get_global("language_aliases").get(code, code)
    code = other if other.split("_")[0] in names else code
    return code if code.split("_")[0] in names and code not in _NO_LANGUAGE else None


@cache
def _english() -> Any:
    from babel import Locale

    return Locale("en")


@cache
def _codes() -> Mapping[str, str]:
    return {name: code for code, name in _english().languages.items()} | {of[0]: code for code, of in _UNNAMED.items()}


@cache
def _names() -> Mapping[str, str]:
    """Names by their casefolded spelling."""
    cldr = (name for code, name in _english().languages.items() if code not in _NO_LANGUAGE)
    names = {name.casefold(): name for name in (*cldr, *(name for name, _ in _UNNAMED.values()))}
    return names | _OTHER_NAMES


@cache
def _own_names() -> Mapping[str, str]:
    """The languages of `LANG_NAMES` by the casefolded names that speakers use: Deutsch is German, and never Dutch."""
    from babel import Locale

    return {Locale(code).languages[code].casefold(): name for code, name in LANG_NAMES.items()}
