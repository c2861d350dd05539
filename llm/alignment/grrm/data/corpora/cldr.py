"""Wording of numbers, units, money, dates and places in a language, from Unicode CLDR as packaged by `babel`.

Every function returns None where CLDR (or babel's copy of it) has a gap, so that a gap is never printed as text
in place of a name, for instance `5 length-kilometer` or `12.00 XTS`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from typing import Any

from babel import Locale
from babel.numbers import format_currency, format_decimal, format_percent

from grrm.errors import UserError

LANGUAGES = ("en", "de", "fr", "nl", "it", "es", "pt", "ko", "ru", "zh")

_SPACES = re.compile(r"[\s\u00a0\u2007\u2009\u202f]+")
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f]")
_SPANISH_FOUR_DIGITS = re.compile(r"(?<![\d.])(\d)\.(\d{3})(?![\d.])")
_SPANISH_Y = re.compile(r" y (?=[iIíÍ]|[hH][iIíÍ](?![aeAE]))")
_SPANISH_O = re.compile(r" o (?=[oOóÓ8]|[hH][oOóÓ]|11\b)")


@cache
def locale_of(language: str) -> Any:
    """The babel locale of one of LANGUAGES. Raises UserError for any other language."""
    if language not in LANGUAGES:
        raise UserError(f"language {language!r} is not in the corpora; choose among {', '.join(LANGUAGES)}")
    return Locale.parse(language)


def tidy(text: str) -> str:
    """`text` with typographic spaces made ordinary and soft hyphens and direction marks removed."""
    return _SPACES.sub(" ", _INVISIBLE.sub("", text)).strip()


def number(value: Decimal, language: str) -> str:
    """`value` with the language's separators; all of its digits are shown."""
    text = format_decimal(value, locale=locale_of(language), decimal_quantization=False)
    return _grouping(tidy(text), language)


def percentage(value: Decimal, language: str) -> str:
    """`value` percent (12.5 means 12.5 %)."""
    text = format_percent(value / 100, locale=locale_of(language), decimal_quantization=False)
    return _grouping(tidy(text), language)


def money(value: Decimal, currency: str, language: str) -> str | None:
    """An amount with the currency's sign, None where the language has no sign for it."""
    locale = locale_of(language)
    if locale.currency_symbols.get(currency, currency) == currency:
        return None
    return _grouping(tidy(format_currency(value, currency, locale=locale)), language)


def money_in_words(value: Decimal, currency: str, language: str) -> str | None:
    """An amount with the currency's name in the right plural, None where the language has no name for it."""
    locale = locale_of(language)
    if locale.currencies.get(currency, currency) == currency:
        return None
    is_integer = value == value.to_integral_value()
    text = tidy(
        format_currency(
            value.to_integral_value() if is_integer else value,
            currency,
            format="#,##0" if is_integer else None,
            locale=locale,
            currency_digits=not is_integer,
            format_type="name",
        )
    )
    # CLDR's Portuguese names begin with a capital, which is wrong inside an amount.
    text = re.sub(r"(?<= )\w", lambda match: match.group().lower(), text, count=1) if language == "pt" else text
    return _grouping(text, language)


@cache
def _unit_patterns(unit: str, language: str) -> dict[str, str]:
    """Plural form -> pattern. Where CLDR says that the long names are the short ones, babel has no long ones."""
    widths = locale_of(language)._data["unit_patterns"].get(unit, {})
    plain = [
        {form: text for form, text in widths.get(width, {}).items() if form != "per"} for width in ("long", "short")
    ]
    return plain[0] or plain[1]


def measure(value: Decimal, unit: str, language: str) -> str | None:
    """`value` with the unit's full name in the right plural, None where that form of the name is missing."""
    pattern = _unit_patterns(unit, language).get(locale_of(language).plural_form(value))
    return None if pattern is None else tidy(pattern.format(number(value, language)))


def joined(items: Sequence[str], language: str, style: str = "standard") -> str:
    """At least two items as a list in words; `style` is "standard" (and) or "or"."""
    patterns = locale_of(language).list_patterns[style]
    if len(items) == 2:
        text = patterns["2"].format(*items)
    else:
        text = items[0]
        for position, item in enumerate(items[1:], start=1):
            role = "start" if position == 1 else "end" if position == len(items) - 1 else "middle"
            text = patterns[role].format(text, item)
    return _euphony(tidy(text), language)


def compound(first: str, second: str, language: str) -> str:
    """Two parts of one measurement, `5 hours, 3 minutes`."""
    styles = locale_of(language).list_patterns
    pattern = next((styles[style]["2"] for style in ("unit", "unit-short") if "2" in styles.get(style, {})), "{0}, {1}")
    return tidy(pattern.format(first, second))


@cache
def territory(code: str, language: str) -> str | None:
    """The territory's name, None where it is missing, is the code, or has marks that confuse a list."""
    name = locale_of(language).territories.get(code)
    return None if name is None or name == code or re.search(r"[()（）,、&/]| - ", name) else tidy(name)


def labelled(label: str, text: str, language: str) -> str:
    """`label: text` with the language's own spacing of the colon."""
    colon = {"fr": " : ", "zh": "："}.get(language, ": ")
    return f"{label}{colon}{text}"


def bracketed(text: str, remark: str, language: str) -> str:
    """`text (remark)` with the language's own brackets."""
    brackets = {"zh": "{}（{}）", "ko": "{}({})"}.get(language, "{} ({})")
    return brackets.format(text, remark)


def _grouping(text: str, language: str) -> str:
    """Spanish groups digits from five on (CLDR minimumGroupingDigits = 2, which babel does not apply)."""
    return _SPANISH_FOUR_DIGITS.sub(r"\1\2", text) if language == "es" else text


def _euphony(text: str, language: str) -> str:
    """Spanish `y` becomes `e` before the sound i, and `o` becomes `u` before the sound o."""
    return _SPANISH_O.sub(" u ", _SPANISH_Y.sub(" e ", text)) if language == "es" else text
