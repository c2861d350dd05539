"""Dates, spans of dates, and times of day."""

from __future__ import annotations

import datetime as dt
import random
import re
from functools import partial

from babel.dates import format_date, format_interval, format_skeleton, format_time

from grrm.data.corpora.cldr import locale_of, tidy
from grrm.data.corpora.phrase import Draws, Phrase

FIRST_DAY = dt.date(1950, 1, 1)
N_DAYS = 85 * 365
_MONTHS = ("yMMMM", "MMMMd", "yQQQQ")
_FRENCH_FIRST = re.compile(r"\b1 (?=[a-zéû])")


def date(draws: Draws) -> Phrase:
    """A day, written in full with its weekday, in full, or in figures."""
    day, name = _day(draws)
    style = draws.rng.choice(("full", "long", "long", "yMd"))
    return Phrase((name,), partial(date_text, day, style))


def month(draws: Draws) -> Phrase:
    """A month of a year, a day of a month, or a quarter of a year."""
    skeleton = draws.rng.choice(_MONTHS)
    day, name = draws.pick(_any_day, lambda day: f"{skeleton}:{date_text(day, skeleton, 'en')}")
    return Phrase((name,), partial(date_text, day, skeleton))


def span(draws: Draws) -> Phrase:
    """From one day to another, up to three months later."""
    (first, last), name = draws.pick(_any_span, lambda span: f"span:{span[0]}/{span[1]}")
    return Phrase((name,), partial(_span_text, first, last))


def time(draws: Draws) -> Phrase:
    """A time of day, with or without seconds."""
    style = draws.rng.choice(("short", "short", "medium"))
    clock, name = draws.pick(partial(_any_clock, with_seconds=style == "medium"), lambda clock: f"time:{clock}")
    return Phrase((name,), partial(time_text, clock, style))


def moment(draws: Draws) -> Phrase:
    """A day and a time of day."""
    day, day_name = _day(draws)
    clock, clock_name = draws.pick(partial(_any_clock, with_seconds=False), lambda clock: f"time:{clock}")
    style = draws.rng.choice(("full", "long", "long"))
    return Phrase((day_name, clock_name), partial(_moment_text, day, clock, style))


def date_text(day: dt.date, style: str, language: str) -> str:
    """`day` in a CLDR style (full, long) or skeleton (yMMMM, yMd, ...)."""
    locale = locale_of(language)
    if style in ("full", "long"):
        text = format_date(day, style, locale=locale)
    else:
        text = format_skeleton(style, day, locale=locale)
    return _french_first(tidy(text), language)


def time_text(clock: dt.time, style: str, language: str) -> str:
    """`clock` in a CLDR style (short, medium)."""
    locale = locale_of(language)
    text = tidy(format_time(clock, style, locale=locale))
    if language == "ko":  # babel has only the Latin abbreviations here, CLDR's users see the words
        words = locale.day_periods["format"]["wide"]
        text = text.replace("AM", words["am"]).replace("PM", words["pm"])
    return text


def _moment_text(day: dt.date, clock: dt.time, style: str, language: str) -> str:
    glue = str(locale_of(language).datetime_formats[style]).replace("'", "")
    return tidy(glue.format(time_text(clock, "short", language), date_text(day, style, language)))


def _span_text(first: dt.date, last: dt.date, language: str) -> str:
    text = tidy(format_interval(first, last, "yMMMd", locale=locale_of(language)))
    return _french_first(text, language)


def _french_first(text: str, language: str) -> str:
    """The first of a month is an ordinal in French; CLDR's patterns cannot say so."""
    return _FRENCH_FIRST.sub("1er ", text) if language == "fr" else text


def _day(draws: Draws) -> tuple[dt.date, str]:
    return draws.pick(_any_day, lambda day: f"date:{day}")


def _any_day(rng: random.Random) -> dt.date:
    return FIRST_DAY + dt.timedelta(days=rng.randrange(N_DAYS))


def _any_span(rng: random.Random) -> tuple[dt.date, dt.date]:
    first = _any_day(rng)
    return first, first + dt.timedelta(days=rng.randint(1, 90))


def _any_clock(rng: random.Random, with_seconds: bool) -> dt.time:
    return dt.time(rng.randrange(24), rng.randrange(60), rng.randrange(60) if with_seconds else 0)
