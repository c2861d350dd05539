"""Phrases made of two simpler ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from grrm.data.corpora import cldr
from grrm.data.corpora.kinds import dates, places, quantities
from grrm.data.corpora.phrase import Draws, Phrase

Compose = Callable[[str, str, str], str]


def entry(draws: Draws) -> Phrase:
    """A line of a table: a place and a figure, or a month and a figure."""
    figure = draws.rng.choice((quantities.money, _measure_of_place, quantities.percentage))(draws)
    label = _place(draws) if draws.rng.random() < 0.7 else dates.month(draws)
    return _both(label, figure, cldr.labelled)


def caption(draws: Draws) -> Phrase:
    """A place with a date in brackets."""
    when = draws.rng.choice((dates.date, dates.month))(draws)
    return _both(_place(draws), when, cldr.bracketed)


def share(draws: Draws) -> Phrase:
    """An amount or measure with its percentage in brackets."""
    whole = draws.rng.choice((quantities.money, quantities.measure))(draws)
    return _both(whole, quantities.percentage(draws), cldr.bracketed)


def pair(draws: Draws) -> Phrase:
    """Two amounts, two percentages, or two measures of one dimension, joined by "and" or "or"."""
    unit = draws.rng.choice(quantities.UNITS)
    same_dimension = [other for other in quantities.UNITS if other.split("-")[0] == unit.split("-")[0]]
    measure = partial(quantities.measure, units=same_dimension)
    kind = draws.rng.choice((quantities.money, measure, measure, quantities.percentage))
    return _both(kind(draws), kind(draws), partial(_list_of_two, draws.rng.choice(("standard", "or"))))


def _place(draws: Draws) -> Phrase:
    """A place alone carries no content of its own: the same places are named on both sides of the split."""
    return Phrase((), partial(places.place_text, draws.rng.choice(places.PLACES)))


def _measure_of_place(draws: Draws) -> Phrase:
    return quantities.measure(draws, quantities.UNITS_OF_PLACES)


def _list_of_two(style: str, first: str, second: str, language: str) -> str:
    return cldr.joined((first, second), language, style)


def _both(first: Phrase, second: Phrase, compose: Compose) -> Phrase:
    return Phrase(first.content + second.content, partial(_both_text, first, second, compose))


def _both_text(first: Phrase, second: Phrase, compose: Compose, language: str) -> str | None:
    left, right = first.render(language), second.render(language)
    return None if left is None or right is None else compose(left, right, language)
