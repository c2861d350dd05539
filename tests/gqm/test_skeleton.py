from __future__ import annotations

import sys
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from grrm.gqm import compat
from grrm.gqm.fences import skeleton
from grrm.gqm.marks import MAX_MARKS, cap_marks


def test_nothing_invisible_is_left():
    formats = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) == "Cf"]
    assert skeleton("".join(formats)) == ""


def test_look_alikes_become_what_they_look_like():
    assert skeleton("Тrаnslаtiоn В∶") == "Translation B:"
    assert skeleton("ＡＢＣ：１０ ＞ ˋ｀\u1fef") == "ABC:10 > ```"


def test_every_line_break_is_a_newline():
    assert skeleton("a\r\nb\rc\u2028d\u2029e\x0bf\x85g\nh") == "a\nb\nc\nd\ne\nf\ng\nh"


@given(st.text(alphabet=st.characters(min_codepoint=9, max_codepoint=126)))
def test_plain_text_is_its_own_skeleton_but_for_its_line_breaks(text):
    assert skeleton(text).split("\n") == text.replace("\r\n", "\n").translate({13: 10, 11: 10, 12: 10}).split("\n")


@given(st.text())
def test_a_skeleton_has_no_skeleton_of_its_own(text):
    assert skeleton(skeleton(text)) == skeleton(text)


def test_a_run_of_marks_is_capped_before_it_is_sorted():
    piled = "e" + "\u0301\u0323" * 100_000  # sorted by Unicode's rule this would take minutes
    assert len(skeleton(piled)) <= MAX_MARKS + 1
    assert cap_marks(piled + "x" + "\u0301" * 5) == piled[: MAX_MARKS + 1] + "x" + "\u0301" * 5


@given(st.text())
def test_texts_without_long_runs_of_marks_are_kept(text):
    assert cap_marks(text) == text


PIECES = ["A", "B", "C", ":", ",", " > ", " = ", "\n", "8", "-1", ".5", "```", "<answer>", "</answer>", "[COT]", " "]
TEXTS = st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=16).map("".join))


@given(TEXTS, st.integers(0, 27), st.sampled_from(["score", "ranking", "ranking_score", "bogus"]))
def test_group_parsers_answer_one_score_per_candidate_or_none(text, n, prompt_type):
    for parse in (compat.gqm_extract_score, compat.group_extract_scores):
        scores = parse(text, prompt_type, n)
        assert scores is None or prompt_type != "bogus"
        assert scores is None or len(scores) == min(n, 26)


@given(TEXTS)
def test_the_parser_of_one_score_takes_any_text(text):
    assert isinstance(compat.sqm_extract_score(text), int | None)
