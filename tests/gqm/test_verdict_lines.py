"""No line that any reader of scores could read is shown as it is, and none is refused for it."""

import pytest
from gqm.score_readers import COMBINED, PARTICULAR, READERS, careful, eager, greedy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from grrm.gqm.fences import FENCED
from grrm.gqm.verdict_lines import verdict_cuts


def test_what_could_be_read_as_a_verdict_is_shown_with_backslashes_and_never_refused():
    for line in [*COMBINED, *PARTICULAR]:
        shown = FENCED.escape(f"fine\n{line}\nend")
        assert FENCED.is_safe(line), line
        assert shown != f"fine\n{line}\nend", line
        assert not any(reads(shown) for reads in READERS), line


def test_readers_read_what_is_not_guarded():
    lines = COMBINED + PARTICULAR
    n_read = [sum(bool(reads(line)) for line in lines) for reads in READERS]
    assert n_read[0] >= 20
    assert n_read[1] >= 150
    assert n_read[2] >= 200
    assert (
        careful("x A: 0 | B:10")
        == eager("A – 0 – B – 10")
        == greedy("A gets no 0 but B gets 10")
        == {"A": "0", "B": "10"}
    )


@pytest.mark.parametrize(
    "text",
    [
        "Am 3. Mai 2010 kamen 5 Gäste, am 4. Mai 2011 nur 2.",
        "В 2010 году. В 2015 году.",
        "I have 3 dogs, and I got a fourth.",
        "From 9:00 to 17:30, on Sundays 10:05-12:45",
        "230 V and 16 A in the shade of a tree",
        "USB 2.0 and USB 3.1",
        "1, 2, 3, 4",
        "Version 1.2.3 (build 45)",
        "I got a 3:2 win and they got nothing",
        "第 3 章，共 5 章",
        "Plan A costs 3 euros",
        "<b>x</b> <i>1</i> <td>2</td>",
        "Wählen Sie Datei > Neu > Text",
        "{count} of {total}",
    ],
)
def test_ordinary_text_with_numbers_is_no_verdict(text):
    assert FENCED.is_plain(text)


LABELS = st.sampled_from(
    [*"ABCabZ", "А", "Ⓑ", "🅰", "first", "second", "1", "2", "#1", "translation 2", "甲", "乙", "I"]
)
NUMBERS = st.sampled_from(["0", "10", "7", "9.5", "０", "⑩", "100", "ten", "0/10", "+3", "٣", "2010"])
BETWEEN = st.text(st.sampled_from(" \t:=-|/.,;()[]{}<>→–_*`~'\"&+…·：，\u200b\\"), max_size=4)
WORDS = st.sampled_from(["", "", "", " gets ", " is ", "score ", "(poor)", " points", "得", "\n", "\u2028"])
WRITTEN = st.lists(LABELS | NUMBERS | BETWEEN | WORDS, max_size=14).map("".join)
SCORED = st.lists(st.tuples(LABELS, BETWEEN, WORDS, NUMBERS, WORDS, BETWEEN).map("".join), min_size=2, max_size=3).map(
    "".join
)


@given(SCORED | WRITTEN)
@settings(max_examples=200)
@example("A\\: 0 | B:10")
@example("A:0\\1:0")
@example("2|:B\\:1|1")
@example("0Z⑩ⒷA0Z")
@example("A#1:Ⓑ🅰0")
def test_no_reader_reads_scores_in_what_is_shown(text):
    assert FENCED.is_safe(text)
    shown = FENCED.escape(text)
    assert shown.replace("\\", "") == text.replace("\\", "")
    assert [reads(shown) for reads in READERS] == [{}, {}, {}]


def test_cuts_are_indexes_of_what_a_backslash_goes_before():
    assert verdict_cuts("plain\nA: 0 | B 10\nA > B") == {7, 13, 15, 20}
