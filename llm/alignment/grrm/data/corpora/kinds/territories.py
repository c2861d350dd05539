"""Lists of countries and territories."""

from __future__ import annotations

import random
from functools import partial

from grrm.data.corpora import cldr
from grrm.data.corpora.phrase import Draws, Phrase

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
    codes = draws.pick(_any_territories, _name)
    style = draws.rng.choice(("standard", "standard", "or"))
    return Phrase((_name(codes),), partial(_list_text, codes, style))


def territory_text(code: str, language: str) -> str | None:
    """The name of a territory."""
    return cldr.territory(code, language)


def _list_text(codes: tuple[str, ...], style: str, language: str) -> str | None:
    names = [name for code in codes if (name := cldr.territory(code, language)) is not None]
    return cldr.joined(names, language, style) if len(names) == len(codes) else None


def _any_territories(rng: random.Random) -> tuple[str, ...]:
    return tuple(rng.sample(TERRITORIES, rng.choice((2, 2, 3, 3, 4))))


def _name(codes: tuple[str, ...]) -> str:
    return "places:" + " ".join(sorted(codes))
