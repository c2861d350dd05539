"""The differences of a translation from the reference, in a line that is true by construction.

A small judge cannot learn a long comparison, but it can learn to name a few words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from grrm.data.annotation.pieces import pieces
from grrm.gqm.languages import CANDIDATE_IDS
from grrm.gqm.prompts import without_verdict

MAX_WORDS = 12
FAULTS = ("untranslated", "wrong", "missing", "added")
Faults = dict[str, list[str]]


def align_group(source: str, reference: str, candidates: Sequence[str]) -> str:
    """A line per candidate A, B, … of at most `MAX_WORDS` words, its name among them."""
    lines = (
        f"{name}: {fault_line(source, reference, candidate, MAX_WORDS - 1)}"
        for name, candidate in zip(CANDIDATE_IDS, candidates, strict=False)
    )
    return "\n".join(lines)


def fault_line(source: str, reference: str, candidate: str, max_words: int = MAX_WORDS) -> str:
    """Such as `untranslated door; missing Tür, auf`: the first words of each fault, while there is room.

    `complete` where all words are those of the reference, `differs` where none of the others can be shown. Words that
    a reader of verdicts would take for a part of one are not.
    """
    all_faults = faults(source, reference, candidate)
    shown: Faults = {}
    n_words = 0
    for fault, word in _in_turn(all_faults):
        if without_verdict(word) != word:
            continue
        n_words += 1 if fault in shown else 2
        if n_words > max_words:
            break
        shown.setdefault(fault, []).append(word)
    if not shown:
        return "differs" if all_faults else "complete"
    return "; ".join(f"{fault} {', '.join(shown[fault])}" for fault in FAULTS if fault in shown)


def faults(source: str, reference: str, candidate: str) -> Faults:
    """The words of each of `FAULTS`, in their order; upper and lower case are the same.

    By an alignment of the words of candidate and reference (Ratcliff and Obershelp): those of the reference without a
    partner are missing, those of the candidate wrong where they take the place of some, else added; and untranslated
    where the source has them and the reference does not.
    """
    theirs, ours = ([piece.strip() for piece in pieces(text)] for text in (reference, candidate))
    plain_theirs, plain_ours = ([word.casefold() for word in words] for words in (theirs, ours))
    foreign = {piece.strip().casefold() for piece in pieces(source)} - set(plain_theirs)
    by_kind: Faults = {}
    for kind, start, end, first, last in SequenceMatcher(None, plain_theirs, plain_ours, False).get_opcodes():
        if kind == "equal":
            continue
        for word in theirs[start:end]:
            by_kind.setdefault("missing", []).append(word)
        for word in ours[first:last]:
            fault = "untranslated" if word.casefold() in foreign else "wrong" if end > start else "added"
            by_kind.setdefault(fault, []).append(word)
    return by_kind


def _in_turn(by_kind: Faults) -> Iterator[tuple[str, str]]:
    """The first word of each fault, then the second of each, …"""
    for number in range(max(map(len, by_kind.values()), default=0)):
        for fault in FAULTS:
            if number < len(by_kind.get(fault, [])):
                yield fault, by_kind[fault][number]
