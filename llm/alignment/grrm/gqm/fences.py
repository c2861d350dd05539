"""Which texts may stand inside a fence of the judge's prompt.

The prompt inserts candidates verbatim. A candidate that closes its fence can add candidates of its own and
address the judge; one that carries a chat control token can end the turn; one that imitates the lines that the
protocol itself consists of can pass for another candidate or for the verdict. Such texts never reach a judge.

What cannot be told from a translation passes: plain prose that asks for a good score, names of roles, HTML. Every
such text stays inside its own fence; whether a judge believes it is a matter of the judge's training.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from enum import Enum

from grrm.gqm.grammar import names_scores
from grrm.gqm.lookalikes import cap_marks, skeleton


class UnsafeReason(str, Enum):
    """Why a text must not be shown to a judge as it is."""

    FENCE = "fence"  # three backticks in a row, or what looks like them
    CONTROL_TOKEN = "control_token"  # reads as a special token of a chat template
    CONTROL_CHARACTER = "control_character"  # unprintable, or a lone surrogate that no tokenizer can encode
    HIDDEN_TEXT = "hidden_text"  # characters that a person does not see and a model reads
    PROTOCOL_LINE = "protocol_line"  # a line that only the prompt or the judge may write


# Special tokens of the model families in use; `guard_for` adds those of the judge's own tokenizer.
_CONTROL_TOKEN = re.compile(
    r"<[|｜][^|｜<>\n]{1,64}[|｜]>"
    r"|</?s>|<</?SYS>>|<(?:start|end)_of_(?:turn|text|image)>|<(?:bos|eos|sop|eop)>|</?(?:think|tool_call)>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]|\[(?:gMASK|BOS|EOS)\]"
    r"|<0x[0-9A-F]{2}>",
    re.IGNORECASE,
)
# Tilde fences only where they are alone on a line: ~~~ inside a sentence is how Chinese and Japanese trail off.
_FENCE = re.compile(r"`{3}|^[ \t]*~{3,}[ \t]*(?:\w+[ \t]*)?$", re.MULTILINE)

# Overrides turn text around, which no translation needs (marks and isolates do their work in Arabic); tag characters
# spell ASCII invisibly, outside the flags of England, Scotland and Wales; long runs of selectors encode bytes.
_FLAG = re.compile("\U0001f3f4[\U000e0061-\U000e007a]{3,6}\U000e007f")
_HIDDEN = re.compile("[\u202d\u202e\U000e0000-\U000e007f]|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4}")

# Two scores or more, and a ranking of three or a labelled one: `A: 9` and `A > B` alone are also ordinary text.
_GAP = r"[^\S\n]*"
_ITEM = rf"[A-Z]{_GAP}:{_GAP}-?[0-9]+(?:\.[0-9]+)?(?:/10)?"
_PROTOCOL_LINE = re.compile(
    r"^[^\w\n]*(?:"
    rf"(?i:translation{_GAP}[A-Z]){_GAP}:.*"
    r"|(?i:source[ \t]text):[^\w\n]*"
    rf"|(?:(?i:(?:final )?scores?){_GAP}:{_GAP})?{_ITEM}(?:{_GAP}[,;]{_GAP}{_ITEM})+[^\w\n]*"
    rf"|(?i:(?:final )?rankings?){_GAP}:{_GAP}[A-Z](?:{_GAP}[>=]{_GAP}[A-Z])+[^\w\n]*"
    rf"|[A-Z](?=[^\n>]*>)(?:{_GAP}[>=]{_GAP}[A-Z]){{2,}}[^\w\n]*"
    r")$"
    r"|^[ \t>*]*\#+[ \t*]*(?i:final ranking|scores):[^\w\n]*$",
    re.MULTILINE,
)


def unsafe_reason(text: str, *, fenced: bool = True) -> UnsafeReason | None:
    """Why `text` would break out of its fence, None if it is safe.

    In a prompt without fences (`fenced` false), fences and lines of the group protocol may stand in a text.

    Judged twice: after NFC, which tokenizers apply and which turns U+1FEF into a backtick, and as its `skeleton`,
    so that neither invisible characters in between nor look-alikes help.
    """
    readings = (unicodedata.normalize("NFC", cap_marks(text)), skeleton(text))
    if fenced and any(_FENCE.search(reading) for reading in readings):
        return UnsafeReason.FENCE
    if any(_CONTROL_TOKEN.search(reading) for reading in readings):
        return UnsafeReason.CONTROL_TOKEN
    if any(char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cs") for char in text):
        return UnsafeReason.CONTROL_CHARACTER
    if _HIDDEN.search(_FLAG.sub("", text)):
        return UnsafeReason.HIDDEN_TEXT
    if fenced and any(_PROTOCOL_LINE.search(reading) or _has_scores(reading) for reading in readings):
        return UnsafeReason.PROTOCOL_LINE
    return None


def _has_scores(text: str) -> bool:
    """Whether some line is one of scores by the grammar's own rule; no such line has less than two colons."""
    return any(line.count(":") + line.count("：") > 1 and names_scores(line.strip()) for line in text.split("\n"))


def is_safe_candidate(text: str) -> bool:
    """True if `text` can be shown to a judge inside a fence."""
    return unsafe_reason(text) is None


def is_safe_unfenced(text: str) -> bool:
    """True if `text` can be shown to a judge whose prompt has no fences."""
    return unsafe_reason(text, fenced=False) is None


def guard_for(special_tokens: Iterable[str], *, fenced: bool = True) -> Callable[[str], bool]:
    """`is_safe_candidate` for a judge whose tokenizer has these special tokens: none may occur in a text either.

    Without tokens it is `is_safe_candidate` itself, or `is_safe_unfenced` for a prompt without fences. Blank tokens are
    ignored, for they would refuse everything.
    """
    tokens = sorted({token for token in special_tokens if token.strip()})
    is_safe_in_itself = is_safe_candidate if fenced else is_safe_unfenced
    if not tokens:
        return is_safe_in_itself
    own_token = re.compile("|".join(re.escape(token) for token in tokens))

    def is_safe(text: str) -> bool:
        readings = (text, unicodedata.normalize("NFC", cap_marks(text)), skeleton(text))
        return is_safe_in_itself(text) and not any(own_token.search(reading) for reading in readings)

    return is_safe
