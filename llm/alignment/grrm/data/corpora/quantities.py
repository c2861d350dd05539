"""Amounts of money, measures, durations and percentages."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from typing import Literal

from babel.dates import format_timedelta

from grrm.data.corpora import cldr
from grrm.data.corpora.phrase import Draws, Phrase

RelativeUnit = Literal["week", "day", "hour", "minute"]
# fmt: off
CURRENCIES = (
    "USD", "EUR", "GBP", "JPY", "CNY", "CHF", "CAD", "AUD", "NZD", "INR", "BRL", "MXN", "KRW", "RUB",
    "SEK", "NOK", "DKK", "PLN", "CZK", "HUF", "TRY", "ZAR", "ILS", "THB", "ARS", "EGP", "UAH",
)
CURRENCIES_WITHOUT_FRACTION = frozenset(("JPY", "KRW", "HUF"))  # amounts are written without a fraction
UNITS = (
    "length-millimeter", "length-centimeter", "length-meter", "length-kilometer", "length-mile", "length-foot",
    "length-inch", "length-nautical-mile", "length-light-year", "area-square-meter", "area-square-kilometer",
    "area-square-mile", "area-square-foot", "area-hectare", "mass-milligram", "mass-gram", "mass-kilogram",
    "mass-tonne", "mass-ounce", "mass-pound", "mass-carat", "volume-milliliter", "volume-liter",
    "volume-cubic-meter", "volume-cubic-centimeter", "volume-barrel", "speed-kilometer-per-hour",
    "speed-mile-per-hour", "speed-meter-per-second", "speed-knot", "temperature-celsius", "temperature-fahrenheit",
    "power-watt", "power-kilowatt", "power-megawatt", "power-horsepower", "energy-kilowatt-hour",
    "energy-kilocalorie", "digital-megabyte", "digital-gigabyte", "digital-terabyte", "frequency-megahertz",
    "frequency-gigahertz", "electric-volt", "electric-ampere",
)
TERRITORY_UNITS = (
    "area-square-kilometer", "area-square-mile", "area-hectare", "length-kilometer", "mass-tonne",
    "volume-cubic-meter", "volume-barrel", "energy-kilowatt-hour", "power-megawatt", "temperature-celsius",
)
# fmt: on
_SMALL = ("temperature", "length-light-year", "mass-carat")  # two digits before the point
DURATIONS = (
    ("duration-century", 20),
    ("duration-year", 99),
    ("duration-month", 24),
    ("duration-week", 52),
    ("duration-day", 365),
    ("duration-hour", 240),
    ("duration-minute", 180),
    ("duration-second", 300),
)
_PARTS = (("year", "month"), ("week", "day"), ("day", "hour"), ("hour", "minute"), ("minute", "second"))
_SPAN = {"year": 40, "month": 11, "week": 20, "day": 6, "hour": 23, "minute": 59, "second": 59}
_SECONDS: dict[RelativeUnit, int] = {"day": 86_400, "hour": 3_600, "minute": 60, "week": 604_800}


def money(draws: Draws) -> Phrase:
    """An amount with the currency's sign or, more often, its name."""
    (currency, value), name = draws.pick(_any_amount, lambda amount: f"money:{amount[0]}:{amount[1]}")
    write = draws.rng.choice((cldr.money, cldr.money_in_words, cldr.money_in_words))
    return Phrase((name,), partial(write, value, currency))


def measure(draws: Draws, units: Sequence[str] = UNITS) -> Phrase:
    """A physical quantity with the unit's full name."""
    (unit, value), name = draws.pick(partial(_any_measure, units), lambda measure: f"measure:{measure[0]}:{measure[1]}")
    return Phrase((name,), partial(cldr.measure, value, unit))


def duration(draws: Draws) -> Phrase:
    """A length of time in one unit, or in two neighbouring ones."""
    if draws.rng.random() < 0.5:
        (unit, value), name = draws.pick(_any_duration, lambda duration: f"duration:{duration[0]}:{duration[1]}")
        return Phrase((name,), partial(cldr.measure, Decimal(value), unit))
    (parts, values), name = draws.pick(_any_two_parts, lambda both: f"duration:{both}")
    return Phrase((name,), partial(_two_parts_text, parts, values))


def relative_time(draws: Draws) -> Phrase:
    """So long ago, or in so much time."""
    (unit, value), name = draws.pick(_any_relative, lambda relative: f"relative:{relative}")
    return Phrase((name,), partial(_relative_text, unit, value))


def percentage(draws: Draws) -> Phrase:
    """A percentage with at most one decimal."""
    value, name = draws.pick(_any_percentage, lambda value: f"percentage:{value}")
    return Phrase((name,), partial(cldr.percentage, value))


def _two_parts_text(parts: tuple[str, str], values: tuple[int, int], language: str) -> str | None:
    first, second = (
        cldr.measure(Decimal(v), f"duration-{part}", language) for part, v in zip(parts, values, strict=True)
    )
    return None if first is None or second is None else cldr.compound(first, second, language)


def _relative_text(unit: RelativeUnit, value: int, language: str) -> str:
    seconds = value * _SECONDS[unit]
    text = format_timedelta(
        seconds, granularity=unit, threshold=10_000, add_direction=True, locale=cldr.locale_of(language)
    )
    return cldr.tidy(text)


def _figure(rng: random.Random, most_digits: int) -> Decimal:
    """A number of 1 to `most_digits` digits before the point, each length equally likely, sometimes one after it."""
    digits = rng.randint(1, most_digits)
    value = Decimal(rng.randrange(10 ** (digits - 1), 10**digits))
    if digits >= 4 and rng.random() < 0.6:
        value = value // 100 * 100
    return value + Decimal(rng.randint(1, 9)) / 10 if digits <= 3 and rng.random() < 0.3 else value


def _any_amount(rng: random.Random) -> tuple[str, Decimal]:
    currency = rng.choice(CURRENCIES)
    if currency in CURRENCIES_WITHOUT_FRACTION:
        return currency, Decimal(rng.randint(1, 999) * 10 ** rng.randint(1, 4))
    cents = Decimal(rng.choice((0, 0, 50, 99, rng.randrange(100)))) / 100
    return currency, (Decimal(rng.randrange(1, 10 ** rng.randint(1, 5))) + cents).quantize(Decimal("0.01"))


def _any_measure(units: Sequence[str], rng: random.Random) -> tuple[str, Decimal]:
    unit = rng.choice(units)
    return unit, _figure(rng, 2 if unit.startswith(_SMALL) else 5)


def _any_duration(rng: random.Random) -> tuple[str, int]:
    unit, most = rng.choice(DURATIONS)
    return unit, rng.randint(1, most)


def _any_two_parts(rng: random.Random) -> tuple[tuple[str, str], tuple[int, int]]:
    parts = rng.choice(_PARTS)
    return parts, (rng.randint(1, _SPAN[parts[0]]), rng.randint(1, _SPAN[parts[1]]))


def _any_relative(rng: random.Random) -> tuple[RelativeUnit, int]:
    return rng.choice(tuple(_SECONDS)), rng.choice((-1, 1)) * rng.randint(2, 99)


def _any_percentage(rng: random.Random) -> Decimal:
    integer = Decimal(rng.randint(0, 99))
    return integer + Decimal(rng.randint(1, 9)) / 10 if rng.random() < 0.7 else integer + 1
