import datetime as dt
import random
from decimal import Decimal

import pytest

from grrm.data.corpora import cldr, dates, phrases, quantities
from grrm.data.corpora.phrase import Draws, side_of
from grrm.errors import UserError


def test_units_missing_under_their_long_name_fall_back_to_cldrs_alias_not_to_the_unit_id() -> None:
    """babel prints `5 length-kilometer` in Chinese and `5 duration-day` in Dutch."""
    assert cldr.measure(Decimal(5), "length-kilometer", "zh") == "5公里"
    assert cldr.measure(Decimal(1), "duration-day", "nl") == "1 dag"
    assert cldr.measure(Decimal(5), "duration-year", "it") == "5 anni"


def test_a_missing_plural_form_or_unit_is_a_gap() -> None:
    assert cldr.measure(Decimal(5), "digital-byte", "nl") == "5 byte"
    assert cldr.measure(Decimal(1), "digital-byte", "nl") is None
    assert cldr.measure(Decimal(5), "duration-day-person", "ko") is None
    assert cldr.measure(Decimal(5), "no-such-unit", "en") is None


@pytest.mark.parametrize("language", cldr.LANGUAGES)
def test_every_unit_currency_and_place_on_the_lists_has_a_name(language: str) -> None:
    units = [*quantities.UNITS, *(unit for unit, _ in quantities.DURATIONS)]
    for value in (Decimal(1), Decimal(2), Decimal(5), Decimal("1.5")):
        assert [unit for unit in units if cldr.measure(value, unit, language) is None] == []
    assert [c for c in quantities.CURRENCIES if cldr.money_in_words(Decimal(5), c, language) is None] == []
    names = [cldr.territory(code, language) for code in phrases.TERRITORIES]
    assert None not in names
    assert len(set(names)) == len(names)


def test_a_currency_without_sign_or_name_is_a_gap_not_an_iso_code() -> None:
    assert cldr.money(Decimal(5), "CHF", "en") is None
    assert cldr.money_in_words(Decimal(5), "XQZ", "en") is None
    assert cldr.money(Decimal("1234.50"), "EUR", "de") == "1.234,50 €"


def test_amounts_in_words_are_plural_and_whole_ones_have_no_cents() -> None:
    assert cldr.money_in_words(Decimal("1.00"), "USD", "ru") == "1 доллар США"
    assert cldr.money_in_words(Decimal("5.00"), "USD", "ru") == "5 долларов США"
    assert cldr.money_in_words(Decimal("2.50"), "USD", "pt") == "2,50 dólares americanos"


def test_spanish_groups_digits_from_five_on() -> None:
    assert cldr.number(Decimal(1234), "es") == "1234"
    assert cldr.number(Decimal(12345), "es") == "12.345"
    assert cldr.number(Decimal(1234567), "es") == "1.234.567"
    assert cldr.number(Decimal(1234), "it") == "1.234"


def test_spanish_conjunctions_follow_the_sound() -> None:
    assert cldr.joined(["Francia", "Italia"], "es") == "Francia e Italia"
    assert cldr.joined(["Polonia", "Hungría"], "es") == "Polonia y Hungría"
    assert cldr.joined(["Perú", "Omán"], "es", "or") == "Perú u Omán"
    assert cldr.joined(["A", "B", "C", "D"], "en") == "A, B, C, and D"


def test_spaces_are_ordinary_and_soft_hyphens_are_gone() -> None:
    assert cldr.tidy(" 1\u202f234\u00a0ki\u00adlo ") == "1 234 kilo"


def test_territories_that_would_confuse_a_list_are_gaps() -> None:
    assert cldr.territory("TT", "en") is None  # Trinidad & Tobago
    assert cldr.territory("QX", "en") is None


def test_korean_times_use_korean_words() -> None:
    assert dates.time_text(dt.time(15, 5), "short", "ko") == "오후 3:05"


def test_the_first_of_a_month_is_an_ordinal_in_french() -> None:
    assert dates.date_text(dt.date(2021, 5, 1), "full", "fr") == "samedi 1er mai 2021"
    assert dates.date_text(dt.date(2021, 5, 21), "long", "fr") == "21 mai 2021"
    assert dates.date_text(dt.date(2021, 5, 1), "yMd", "fr") == "01/05/2021"


def test_colons_and_brackets_follow_the_language() -> None:
    assert cldr.labelled("France", "5 %", "fr") == "France : 5 %"
    assert cldr.labelled("法国", "5%", "zh") == "法国：5%"
    assert cldr.bracketed("독일", "2021년", "ko") == "독일(2021년)"


def test_other_languages_are_refused() -> None:
    with pytest.raises(UserError, match="language 'ja' is not in the corpora"):
        cldr.locale_of("ja")


def test_a_side_without_values_is_an_error_not_an_endless_loop() -> None:
    draws = Draws(random.Random(0), "dev" if side_of("1") == "train" else "train")
    with pytest.raises(ValueError, match=f"on the {draws.side} side"):
        draws.pick(lambda rng: 1, str)
