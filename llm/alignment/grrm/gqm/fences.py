"""Which texts may stand inside a fence of the judge's prompt.

The prompt inserts candidates verbatim. A candidate that closes its fence can add candidates of its own and
address the judge; one that carries a chat control token can end the turn. Such texts never reach a judge.
"""

from __future__ import annotations

import re
import unicodedata
from enum import Enum

_FENCE = re.compile(r"`{3}")
_CONTROL_TOKEN = re.compile(
    r"<[|｜][^|｜<>\n]{1,64}[|｜]>|</s>|<</?SYS>>|\[/?INST\]|<(?:start|end)_of_turn>", re.IGNORECASE
)


class UnsafeReason(str, Enum):
    """Why a text must not be shown to a judge as it is."""

    FENCE = "fence"  # three backticks in a row
    CONTROL_TOKEN = "control_token"  # reads as a special token of a chat template
    CONTROL_CHARACTER = "control_character"  # unprintable, or a lone surrogate that no tokenizer can encode


def unsafe_reason(text: str) -> UnsafeReason | None:
    """Why `text` would break out of its fence, None if it is safe.

    Judged after NFC, which tokenizers apply and which turns U+1FEF into a backtick.
    """
    text = unicodedata.normalize("NFC", text)
    if _FENCE.search(text):
        return UnsafeReason.FENCE
    if _CONTROL_TOKEN.search(text):
        return UnsafeReason.CONTROL_TOKEN
    if any(char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cs") for char in text):
        return UnsafeReason.CONTROL_CHARACTER
    return None


def is_safe_candidate(text: str) -> bool:
    """True if `text` can be shown to a judge inside a fence."""
    return unsafe_reason(text) is None
