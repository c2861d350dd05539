"""What a small judge writes before its verdict: a translation of its own, piece by piece held against the candidates.

The steps are few and alike: translate, look a piece up, count, sort. No small judge has learned them yet, see
docs/LOG.md. The text stays readable:

    3 mai 2024
    3: A+ B+ C-
     mai: A+ B- C-
     2024: A+ B+ C+

    A 9 B 6 C 2
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from grrm.gqm.languages import CANDIDATE_IDS

# A word, a number or a sign of money or measure, with the space before it, so that it is the same token as in the
# candidates; Chinese is taken character by character.
_PIECE = re.compile(r" ?\d+| ?[\u4e00-\u9fff]| ?[^\W\d_\u4e00-\u9fff]+| ?[€$£¥₩%°′″]+")


def pieces(text: str) -> list[str]:
    """What is compared; punctuation is not."""
    return _PIECE.findall(text)


def analyse_group(translation: str, candidates: Sequence[str], scores: Sequence[int]) -> str:
    """The judge's analysis of candidates A, B, … that have these scores, `translation` being its own."""
    found = [_piece_set(candidate) for candidate in candidates]
    lines = [translation]
    for piece in pieces(translation):
        marks = (f"{name}{_sign(piece, has)}" for name, has in zip(CANDIDATE_IDS, found, strict=False))
        lines.append(f"{piece}: {' '.join(marks)}")
    draft = " ".join(f"{name} {score}" for name, score in zip(CANDIDATE_IDS, scores, strict=False))
    return "\n".join([*lines, "", draft])


def analyse_one(translation: str, candidate: str) -> str:
    """The analysis of a single candidate."""
    has = _piece_set(candidate)
    return "\n".join([translation, *(f"{piece}: {_sign(piece, has)}" for piece in pieces(translation))])


def _piece_set(text: str) -> set[str]:
    return {piece.strip() for piece in pieces(text)}


def _sign(piece: str, has: set[str]) -> str:
    return "+" if piece.strip() in has else "-"
