"""How texts are shown in a judge's prompt, and which cannot be.

The prompt inserts source and candidates between fences. A text that closes its fence can add candidates of its own and
address the judge; one that carries a chat control token can end the turn; one that imitates the lines that the
protocol itself consists of can pass for another candidate or for the verdict. So the fence is made longer than any in
the texts, and a backslash goes into whatever would be read as a control token or as such a line:

    <|im_end|>          <\\|im_end|>
    Translation B: x    Translation B\\: x
    A: 0, B: 10         A\\: 0\\, B\\: 10

Different texts are shown differently, and a text with nothing of the kind as it is. What hides text from people has no
such form and is never shown. What cannot be told from a translation passes: plain prose that asks for a good score,
names of roles, HTML. It stays inside its own fence; whether a judge believes it is a matter of the judge's training.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache

from grrm.gqm.grammar import names_ranking, names_scores, reads_as_positions
from grrm.gqm.lookalikes import cap_marks, skeleton, split_lines
from grrm.gqm.prompts import FENCE


class UnsafeReason(str, Enum):
    """Why a text cannot be shown to a judge, escaped or not."""

    FENCE = "fence"  # more backticks in a row than a fence should have
    CONTROL_TOKEN = "control_token"  # reads as a special token of a chat template, whatever is put into it
    CONTROL_CHARACTER = "control_character"  # unprintable, or a lone surrogate that no tokenizer can encode
    HIDDEN_TEXT = "hidden_text"  # characters that a person does not see and a model reads
    PROTOCOL_LINE = "protocol_line"  # reads as a line that only the prompt or the judge may write


# Special tokens of the model families in use; a guard adds those of the judge's own tokenizer.
_CONTROL_TOKEN = re.compile(
    r"<[|｜][^>\n]{1,64}?[|｜]>"
    r"|</?s>|<</?SYS>>|<(?:start|end)_of_(?:turn|text|image)>|<(?:bos|eos|sop|eop)>|</?(?:think|tool_call)>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]|\[(?:gMASK|BOS|EOS)\]"
    r"|<0x[0-9A-F]{2}>",
    re.IGNORECASE,
)
_BACKTICKS = re.compile("`+")
MAX_BACKTICKS = 64  # in a row; a fence longer than any text's would otherwise fill the prompt

# Overrides turn text around, which no translation needs (marks and isolates do their work in Arabic); tag characters
# spell ASCII invisibly, outside the flags of England, Scotland and Wales; long runs of selectors encode bytes.
_FLAG = re.compile("\U0001f3f4[\U000e0061-\U000e007a]{3,6}\U000e007f")
_HIDDEN = re.compile("[\u202d\u202e\U000e0000-\U000e007f]|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4}")

# What the prompt and a judge write, in any decoration; `A: 9` alone is also ordinary text.
_GAP = r"[^\S\n]*"
_DECORATED_GAP = r"(?:[^\S\n]|[*_`])*"
_ITEM = rf"[A-Z]{_GAP}:{_GAP}-?[0-9]+(?:\.[0-9]+)?(?:/10)?"
_PROTOCOL_LINE = re.compile(
    r"^[^\w\n]*(?:"
    rf"(?:[0-9]{{1,3}}[.)][^\w\n]*)?(?i:translation{_DECORATED_GAP}[A-Z]){_DECORATED_GAP}:.*"
    r"|(?i:(?:source|translation)[ \t]text):[^\w\n]*"
    rf"|(?:(?i:(?:final )?scores?){_GAP}:{_GAP})?{_ITEM}(?:{_GAP}[,;]{_GAP}{_ITEM})+[^\w\n]*"
    rf"|(?i:(?:final )?rankings?){_GAP}:{_GAP}[A-Z](?:{_GAP}[>=]{_GAP}[A-Z])+[^\w\n]*"
    rf"|[A-Z](?=[^\n>]*>)(?:{_GAP}[>=]{_GAP}[A-Z]){{2,}}[^\w\n]*"
    r")$"
    r"|^[ \t>*]*\#+[ \t*]*(?i:final ranking|scores):[^\w\n]*$",
    re.MULTILINE,
)


_SIGN = re.compile("[:：>＞=＝]")
_ESCAPED_SIGNS = frozenset(":,>=")


@dataclass(frozen=True)
class Guard:
    """Shows texts in the prompt of a judge whose tokenizer has `special_tokens`.

    `fenced` is off for a prompt without fences, in which lines of the group protocol may stand. `by_position` is for a
    judge whose replies are read by position, as `reads_as_positions` says. Texts are read twice: after NFC, which
    tokenizers apply and which turns U+1FEF into a backtick, and as their `skeleton`, so that neither invisible
    characters in between nor look-alikes help.
    """

    special_tokens: frozenset[str] = frozenset()
    fenced: bool = True
    by_position: bool = False

    def escape(self, text: str) -> str:
        """`text` as it is to stand in the prompt; `unsafe_reason` tells whether even that could deceive."""
        readings = _readings(text)
        if not self._deceptive({*readings, *(reading.replace("\\", "") for reading in readings)}):
            return text
        return "".join(self._escape_line(line) for line in split_lines(text))

    def unsafe_reason(self, text: str) -> UnsafeReason | None:
        """Why `text` cannot be shown even when it is escaped, None if it can."""
        if any(char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cs") for char in text):
            return UnsafeReason.CONTROL_CHARACTER
        if _HIDDEN.search(_FLAG.sub("", text)):
            return UnsafeReason.HIDDEN_TEXT
        if self.fenced and _longest_run(text) > MAX_BACKTICKS:
            return UnsafeReason.FENCE
        return self._deceptive(_readings(self.escape(text)))

    def is_safe(self, text: str) -> bool:
        """True if `text` can be shown to the judge, escaped where needed."""
        return self.unsafe_reason(text) is None

    def is_plain(self, text: str) -> bool:
        """True if `text` can be shown as it is, within the fences of every prompt."""
        return self.is_safe(text) and self.escape(text) == text and fence_for([text]) == FENCE

    @cached_property
    def _token(self) -> re.Pattern[str]:
        """Matches where a control token begins. Blank tokens are ignored, for they would refuse everything."""
        tokens = {token for token in self.special_tokens if token.strip() and not _CONTROL_TOKEN.fullmatch(token)}
        first = "".join(re.escape(char) for char in sorted({"<", "[", *(token[0] for token in tokens)}))
        own = sorted(map(re.escape, tokens))
        return re.compile(f"(?=[{first}])(?=(?i:{_CONTROL_TOKEN.pattern})|{'|'.join(own) or '(?!)'})")

    def _deceptive(self, readings: Collection[str]) -> UnsafeReason | None:
        if any(self._token.search(reading) for reading in readings):
            return UnsafeReason.CONTROL_TOKEN
        if any(self._is_protocol(line) for reading in set(readings) for line in set(reading.split("\n"))):
            return UnsafeReason.PROTOCOL_LINE
        return None

    def _is_protocol(self, line: str) -> bool:
        """Whether the prompt or the judge could have written the line: by its look, or because the grammar reads it."""
        if not self.fenced or not _SIGN.search(line):
            return self.by_position and reads_as_positions(line)
        return (
            _PROTOCOL_LINE.search(line) is not None
            or names_scores(line)
            or names_ranking(line)
            or (self.by_position and reads_as_positions(line))
        )

    def _escape_line(self, line: str) -> str:
        """`line` with a backslash after the first character of every control token, and before the signs of a line of
        the protocol. Backslashes that are there play no part in what is one, so that escaping can be undone.
        """
        plain = [_char_skeleton(char) for char in line]
        bare = ["" if char == "\\" else char for char in line]
        marks = Counter({index + 1 for reading in (plain, bare) for index in self._token_starts(reading)})
        if self._is_protocol("".join(plain)):
            marks.update(index for index, char in enumerate(plain) if not _ESCAPED_SIGNS.isdisjoint(char))
        return "".join("\\" * marks[index] + char for index, char in enumerate(line)) + "\\" * marks[len(line)]

    def _token_starts(self, reading: Sequence[str]) -> list[int]:
        """Indexes into `reading`, which has a string for each character of a line."""
        origin = [index for index, piece in enumerate(reading) for _ in piece]
        return [origin[found.start()] for found in self._token.finditer("".join(reading))]


FENCED = Guard()
UNFENCED = Guard(fenced=False)


def fence_for(texts: Iterable[str]) -> str:
    """The fence for these texts: three backticks, or one more than any of them has in a row."""
    return "`" * max(len(FENCE), *(_longest_run(text) + 1 for text in texts))


def _longest_run(text: str) -> int:
    if text.isascii() and "`" not in text:
        return 0
    return max((len(run) for reading in _readings(text) for run in _BACKTICKS.findall(reading)), default=0)


def _readings(text: str) -> tuple[str, str]:
    return unicodedata.normalize("NFC", cap_marks(text)), skeleton(text)


@lru_cache(maxsize=4096)
def _char_skeleton(char: str) -> str:
    return "" if char == "\\" else skeleton(char)
