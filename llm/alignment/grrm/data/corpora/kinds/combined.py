"""Phrases made of two simpler ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from grrm.data.corpora import cldr
from grrm.data.corpora.kinds import dates, quantities, territories
from grrm.data.corpora.phrase import Draws, Phrase

Compose = Callable[[str, str, str], str]


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
    return Phrase((), partial(territories.territory_text, draws.rng.choice(territories.TERRITORIES)))


def _measure_of_territory(draws: Draws) -> Phrase:
    return quantities.measure(draws, quantities.TERRITORY_UNITS)


def _list_of_two(style: str, first: str, second: str, language: str) -> str:
    return cldr.joined((first, second), language, style)


def _both(first: Phrase, second: Phrase, compose: Compose) -> Phrase:
    return Phrase(first.content + second.content, partial(_both_text, first, second, compose))


def _both_text(first: Phrase, second: Phrase, compose: Compose, language: str) -> str | None:
    first_text, second_text = first.render(language), second.render(language)
    return None if first_text is None or second_text is None else compose(first_text, second_text, language)
