"""A small judge's analysis before its verdict: a translation of its own, whose pieces it looks up in the candidates.

No small judge has learned this yet, see docs/LOG.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from grrm.gqm.languages import CANDIDATE_IDS

# A word, a number, or a sign of money or measure; with the space before it, so that it is tokenised as in the
# candidates. Chinese is taken character by character.
_PIECE = re.compile(r" ?\d+| ?[\u4e00-\u9fff]| ?[^\W\d_\u4e00-\u9fff]+| ?[€$£¥₩%°′″]+")


def pieces(text: str) -> list[str]:
    """The words, numbers and signs of a text; punctuation is left out."""
    return _PIECE.findall(text)


def analyse_group(translation: str, candidates: Sequence[str], scores: Sequence[int]) -> str:
    """The judge's analysis of candidates A, B, … that have these scores, `translation` being its own.

    One line per piece says which candidates contain it (+) and which do not (-); a draft of the scores ends it:

        3 mai 2024
        3: A+ B+ C-
         mai: A+ B- C-
         2024: A+ B+ C+

        A 9 B 6 C 2
    """
    piece_sets = [_piece_set(candidate) for candidate in candidates]
    lines = [translation]
    for piece in pieces(translation):
        marks = (f"{name}{_mark(piece, has)}" for name, has in zip(CANDIDATE_IDS, piece_sets, strict=False))
        lines.append(f"{piece}: {' '.join(marks)}")
    draft = " ".join(f"{name} {score}" for name, score in zip(CANDIDATE_IDS, scores, strict=False))
    return "\n".join([*lines, "", draft])


def analyse_candidate(translation: str, candidate: str) -> str:
    """The analysis of a single candidate."""
    has = _piece_set(candidate)
    return "\n".join([translation, *(f"{piece}: {_mark(piece, has)}" for piece in pieces(translation))])


def _piece_set(text: str) -> set[str]:
    return {piece.strip() for piece in pieces(text)}


def _mark(piece: str, has: set[str]) -> str:
    return "+" if piece.strip() in has else "-"
