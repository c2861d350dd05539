"""Replies of a judge that marks errors: score, places, and what is no verdict."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.gqm.error_lines import MarkedErrors, error_prompt, parse_errors
from grrm.gqm.grammar import Rejection
from grrm.gqm.groups import ContextSegment, TranslationTask
from grrm.gqm.spans import ErrorSpan

TEXT = "Das Haus und der Haus sind alt."


def test_errors_of_the_same_words_mark_one_occurrence_after_the_other():
    reply = 'major: "Haus"\nminor: "der"\ncritical: "Haus"'
    spans = (ErrorSpan(4, 8, "major"), ErrorSpan(13, 16, "minor"), ErrorSpan(17, 21, "critical"))
    assert parse_errors(reply, TEXT, "exact") == MarkedErrors(pytest.approx(10 * (1 - 16 / 25)), spans)


def test_what_is_missing_or_not_there_lowers_the_score_and_marks_nothing():
    for line in ('minor: ""', 'minor: "Garten"'):
        assert parse_errors(line, TEXT, "exact") == MarkedErrors(pytest.approx(9.6), ())


def test_translation_without_errors_has_ten_points_and_no_spans():
    assert parse_errors("No errors.", TEXT, "exact") == MarkedErrors(10.0, ())


def test_score_does_not_fall_below_zero():
    marked = parse_errors("\n".join(['critical: "Haus"'] * 9), TEXT, "exact")
    assert isinstance(marked, MarkedErrors)
    assert marked.score == 0.0


def test_tolerant_reads_lists_bold_other_quotes_and_passes_over_other_lines():
    reply = "Let me see.\n1. **Major**: „Haus“ (gender)\n* minor - «alt»\n\nThat is all."
    marked = parse_errors(reply, TEXT)
    assert marked == MarkedErrors(pytest.approx(7.6), (ErrorSpan(4, 8, "major"), ErrorSpan(27, 30, "minor")))
    assert isinstance(parse_errors(reply, TEXT, "exact"), Rejection)


@pytest.mark.parametrize("line", ['Major error: "Haus"', 'major (gender): "Haus"', "major：“Haus”", 'major — "Haus"'])
def test_a_major_error_counts_beside_others_however_its_severity_is_written(line):
    marked = parse_errors(f'{line}\nminor: "alt"', TEXT)
    assert marked == MarkedErrors(pytest.approx(7.6), (ErrorSpan(4, 8, "major"), ErrorSpan(27, 30, "minor")))


@pytest.mark.parametrize(
    "line",
    ['minor: "alt"; major: "Haus"', 'minor: "alt" critical error – “Haus”', 'minor: "alt", Major (gender): "Haus"'],
)
def test_several_errors_on_one_line_are_no_verdict(line):
    for mode in ("exact", "tolerant"):
        assert isinstance(parse_errors(f'{line}\nminor: "der"', TEXT, mode), Rejection)
    assert parse_errors('minor: "alt" (no major error)', TEXT, "exact").score == pytest.approx(9.6)


def test_a_severity_without_errors_costs_nothing():
    assert parse_errors('Critical: none\nMajor: None.\nMinor: "alt"', TEXT).score == pytest.approx(9.6)
    assert parse_errors("critical: no errors\nmajor: none\nminor: none", TEXT) == MarkedErrors(10.0, ())
    assert isinstance(parse_errors("critical: none", TEXT, "exact"), Rejection)
    assert parse_errors("No errors found.", TEXT) == parse_errors("No errors。", TEXT) == MarkedErrors(10.0, ())


@pytest.mark.parametrize(
    "nothing",
    ["None found.", "no critical errors", "No critical issues were found.", "nothing", "No.", "-", "0", "**none**"],
)
def test_a_severity_without_errors_in_other_words_is_no_error(nothing):
    assert parse_errors(f'critical: {nothing}\nMinor: "alt"', TEXT).score == pytest.approx(9.6)
    assert parse_errors(f"Critical: {nothing}\nmajor: {nothing}", TEXT).score == 10.0


def test_errors_that_a_model_thinks_of_are_not_marked():
    assert parse_errors('<think>\nMajor: "Haus"?\nno, it is right.\n</think>\nminor: "alt"', TEXT).spans == (
        ErrorSpan(27, 30, "minor"),
    )
    assert isinstance(parse_errors('<think>\nMajor: "Haus"', TEXT), Rejection)


def test_a_correction_behind_the_wrong_words_does_not_hide_them():
    assert parse_errors('major: "der" should be "das"', TEXT).spans == (ErrorSpan(13, 16, "major"),)
    assert parse_errors("minor: 'der 'Haus' Test'", "der 'Haus' Test").spans == (ErrorSpan(0, 15, "minor"),)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("The translation is good.", "malformed_errors"),
        ('major: "Haus"\nNo errors.', "malformed_errors"),
        ("7", "malformed_errors"),
        ("critical: 0\nmajor: 2", "malformed_errors"),
        ('Major:\n"Haus"\nminor: "alt"', "malformed_errors"),
        ('major gender error, "Haus"\nminor: "alt"', "malformed_errors"),
    ],
)
def test_reply_that_says_neither_or_both_is_no_verdict(reply, reason):
    rejection = parse_errors(reply, TEXT)
    assert isinstance(rejection, Rejection)
    assert rejection.reason.value == reason


@given(st.text(alphabet='major: "Haus"\nno errors.critical-minor', max_size=80), st.text(max_size=30))
def test_any_reply_is_a_score_in_range_with_spans_inside_the_text_or_no_verdict(reply, translation):
    for mode in ("exact", "tolerant"):
        marked = parse_errors(reply, translation, mode)
        if isinstance(marked, MarkedErrors):
            assert 0 <= marked.score <= 10
            assert all(0 <= span.start < span.end <= len(translation) for span in marked.spans)


def test_prompt_has_both_texts_in_fences_longer_than_theirs_and_the_context_before_them():
    task = TranslationTask("a\n```", "de", "en", context=(ContextSegment("vorher", "before"),))
    prompt = error_prompt(task, "b")
    assert "from German into English" in prompt
    assert "````\na\n```\n````" in prompt
    assert "````\nb\n````" in prompt
    assert prompt.index("vorher") < prompt.index("````\na")
