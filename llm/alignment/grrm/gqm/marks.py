"""Combining marks: runs of them are capped before a text is normalised."""

from __future__ import annotations

import unicodedata

_BECOME_MARKS = "\u0f73\u0f75\u0f81\uff9e\uff9f"  # no combining marks before they are normalised
MAX_MARKS = 30  # combining marks in a row that Unicode's stream-safe format allows; no script comes near


def cap_marks(text: str) -> str:
    """`text` with at most MAX_MARKS combining marks in a row: normalising a run takes the square of its length."""
    if text.isascii():
        return text
    marks = {char for char in {*text} if unicodedata.combining(char) or char in _BECOME_MARKS}
    if not marks:
        return text
    capped, run = [], 0
    for char in text:
        run = run + 1 if char in marks else 0
        if run <= MAX_MARKS:
            capped.append(char)
    return "".join(capped)
