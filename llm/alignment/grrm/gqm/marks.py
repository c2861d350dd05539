"""Combining marks: runs of them are capped before a text is normalised."""

from __future__ import annotations

import re
import unicodedata

_BECOME_MARKS = "\u0f73\u0f75\u0f81\uff9e\uff9f"  # no combining marks before they are normalised
MAX_MARKS = 30  # combining marks in a row that Unicode's stream-safe format allows; no script comes near


def cap_marks(text: str) -> str:
    """`text` with at most MAX_MARKS combining marks in a row: normalising a run takes the square of its length."""
    if text.isascii() or len(text) <= MAX_MARKS:
        return text
    marks = "".join(sorted(char for char in {*text} if unicodedata.combining(char) or char in _BECOME_MARKS))
    return re.sub(rf"(?<![{marks}])([{marks}]{{{MAX_MARKS}}})[{marks}]+", r"\1", text) if marks else text
