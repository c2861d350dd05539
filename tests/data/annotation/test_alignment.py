"""How a translation differs from the reference, in a few words that are true by construction."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.data.annotation.alignment import FAULTS, MAX_WORDS, align_group, fault_line, faults
from grrm.data.annotation.pieces import pieces
from grrm.gqm.prompts import without_verdict

SOURCE, REFERENCE = "Close the red door now", "Schließen Sie jetzt die rote Tür"
TEXTS = st.lists(st.sampled_from(["die", "Tür", "red", "door", "3", "Score", "門", "."]), max_size=20).map(" ".join)


@pytest.mark.parametrize(
    ("candidate", "line"),
    [
        ("schließen Sie jetzt die rote Tür!", "complete"),
        ("Schließen Sie die rote Tür", "missing jetzt"),
        ("Schließen Sie jetzt sofort die rote Tür", "added sofort"),
        ("Schließen Sie jetzt die rote door", "untranslated door; missing Tür"),
        ("Schließen Sie jetzt die blaue Tür", "wrong blaue; missing rote"),
        ("", "missing Schließen, Sie, jetzt, die, rote, Tür"),
        (SOURCE, "untranslated Close, the, red, door, now; missing Schließen, Sie, jetzt, die, rote"),
    ],
)
def test_faults_are_named(candidate: str, line: str) -> None:
    assert fault_line(SOURCE, REFERENCE, candidate) == line


def test_chinese_is_aligned_by_characters() -> None:
    assert fault_line("close the door", "关上门", "关上窗门") == "added 窗"


@given(TEXTS, TEXTS, TEXTS)
def test_faults_turn_the_candidate_into_the_reference(source: str, reference: str, candidate: str) -> None:
    found = faults(source, reference, candidate)
    words, wanted = (Counter(piece.strip().casefold() for piece in pieces(text)) for text in (candidate, reference))
    told = {fault: Counter(word.casefold() for word in found.get(fault, [])) for fault in FAULTS}
    surplus = told["untranslated"] + told["wrong"] + told["added"]
    assert words - surplus + told["missing"] == wanted
    foreign = {piece.strip().casefold() for piece in pieces(source)} - set(wanted)
    assert set(told["untranslated"]) == set(surplus) & foreign


@given(TEXTS, TEXTS, st.lists(TEXTS, min_size=2, max_size=8))
def test_lines_are_short_true_and_no_verdict(source: str, reference: str, candidates: list[str]) -> None:
    analysis = align_group(source, reference, candidates)
    assert without_verdict(analysis) == analysis
    for candidate, line in zip(candidates, analysis.split("\n"), strict=True):
        assert len(line.split()) <= MAX_WORDS
        found = faults(source, reference, candidate)
        _, _, told = line.partition(": ")
        if told in ("complete", "differs"):
            assert bool(found) == (told == "differs")
            continue
        for part in told.split("; "):
            fault, _, words = part.partition(" ")
            shown = words.split(", ")
            others = [word for word in found[fault] if "Score" not in word]
            assert shown == others[: len(shown)]
