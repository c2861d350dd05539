import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.gqm.extraction import (
    TranslationDraws,
    draw_translations,
    retry_temperature,
)


class Script:
    """Stands in for generation: every attempt at a row takes its next list of replies; the calls are recorded."""

    def __init__(self, *replies_by_row):
        self.replies_by_row = [list(attempts) for attempts in replies_by_row]
        self.calls = []

    def __call__(self, rows, *, temperature, attempt):
        self.calls.append((list(rows), temperature, attempt))
        return [self.replies_by_row[row].pop(0) for row in rows]


def extract(reply):
    return None if reply == "bad" else reply.upper()


def test_only_incomplete_sources_are_drawn_again_each_time_a_tenth_hotter():
    script = Script([["bad"], ["bad"], ["a"]], [["b"]], [["bad"], ["c"]])
    found = draw_translations(3, script, extract)
    assert [draws.translations for draws in found] == [("A",), ("B",), ("C",)]
    assert [draws.attempts for draws in found] == [3, 1, 2]
    assert script.calls == [([0, 1, 2], 0.0, 0), ([0, 2], 0.1, 1), ([0], 0.2, 2)]


def test_a_single_bad_reply_has_all_replies_of_its_source_drawn_again():
    script = Script([["a", "bad"], ["bad", "b"]])
    [draws] = draw_translations(1, script, extract, temperature=0.7, retries=1)
    assert draws == TranslationDraws(("bad", "b"), (None, "B"), 2)
    assert not draws.is_complete


def test_no_sources_draw_nothing():
    script = Script()
    assert draw_translations(0, script, extract) == []
    assert script.calls == []


def test_generation_that_loses_a_source_is_not_taken_for_an_answer_to_another():
    with pytest.raises(ValueError, match="zip"):
        draw_translations(2, lambda rows, **_: [["a"]], extract)


def test_negative_number_of_retries_is_refused():
    with pytest.raises(ValueError, match="negative"):
        draw_translations(1, Script([["a"]]), extract, retries=-1)


@given(st.floats(0, 2), st.integers(0, 30))
def test_temperature_never_falls_and_retries_do_not_take_it_above_one(temperature, attempt):
    now, then = retry_temperature(temperature, attempt), retry_temperature(temperature, attempt + 1)
    assert temperature <= now <= then <= max(temperature, 1.0)
    assert retry_temperature(temperature, 0) == temperature


@given(st.lists(st.lists(st.sampled_from(["bad", "good"]), min_size=6, max_size=6), max_size=5), st.integers(0, 5))
def test_every_source_ends_with_its_first_good_draw_or_its_last_one(outcomes, retries):
    script = Script(*([[reply] for reply in attempts] for attempts in outcomes))
    for attempts, draws in zip(
        outcomes, draw_translations(len(outcomes), script, extract, retries=retries), strict=True
    ):
        allowed = attempts[: retries + 1]
        expected = allowed.index("good") + 1 if "good" in allowed else retries + 1
        assert draws.attempts == expected
        assert draws.replies == (attempts[expected - 1],)
