"""Fence and escape the texts in a judge's prompt, and detect those that cannot be shown.

The prompt inserts source and candidates between fences. A text that closes its fence can add candidates of its own and
address the judge; one that carries a chat control token can end the turn; one that imitates the lines that the
protocol itself consists of can pass for another candidate or for the verdict.

So the fence is made longer than any in the texts, and a backslash goes into whatever would be read as a control token
or as such a line:

    <|im_end|>          <\\|im_end|>
    Translation B: x    Translation B\\: x
    A: 0, B: 10         A\\: 0\\, B\\: 10
    A 0 | B 10          A \\0 | \\B \\10

What reads as scores or a ranking is up to `grrm.gqm.verdict_lines`, which goes by letters and numbers, not by what
stands between. Different texts are shown differently, and a text with nothing of the kind as it is. What hides text
from people has no such form and is never shown.

What cannot be told from a translation passes: plain prose that asks for a good score, names of roles, HTML. It stays
inside its own fence; whether a judge believes it is a matter of the judge's training.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property, lru_cache
from itertools import accumulate, chain

from grrm.gqm.grammar import reads_as_positions
from grrm.gqm.marks import cap_marks
from grrm.gqm.prompts import FENCE
from grrm.gqm.verdict_lines import Line, ReadLine, kinds_of, sign_cuts, verdict_cuts

_SAME_SHAPES = {
    # Cyrillic and Greek capitals that are drawn like Latin ones
    "АВСЕНІЈКМОРЅТХУԜԌ": "ABCEHIJKMOPSTXYWG",
    "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ": "ABEZHIKMNOPTYX",
    # and the small ones
    "асеіјорѕхуԁԛԝһӏ": "aceijopsxydqwhl",
    "αιονρτυ": "aiovptu",
    # grave accents, and what is set as one; other marks
    "ˋˊ‵´": "````",
    "∶ː꞉׃։܃܄": ":::::::",
    "›≻": ">>",
    "‹〈": "<<",
    "∣❘ǀ│": "||||",
    "∼〜": "~~",
    "＿": "_",
}
_PLAIN = {
    **{ord(odd): plain for odds, plains in _SAME_SHAPES.items() for odd, plain in zip(odds, plains, strict=True)},
    # capitals in circles, in squares, and of flags, which have no compatibility form
    **{first + index: chr(ord("A") + index) for first in (0x1F150, 0x1F170, 0x1F1E6) for index in range(26)},
    0x1F51F: "10",
}
_LOOK_ALIKES = frozenset(map(chr, _PLAIN))

# Every format character (zero width, direction, tags), and what else Unicode allows to be ignored: selectors, fillers.
_IGNORABLE = re.compile(
    "[\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_LINE_BREAK = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")


def skeleton(text: str, look_alikes: Mapping[int, str] = _PLAIN) -> str:
    """`text` under NFKC without ignorable characters, look-alikes replaced, every kind of line break a newline."""
    visible = cap_marks(_IGNORABLE.sub("", text))
    visible = cap_marks(unicodedata.normalize("NFKC", visible.translate(look_alikes) if look_alikes else visible))
    visible = _IGNORABLE.sub("", visible)
    return _LINE_BREAK.sub("\n", visible.translate(look_alikes) if look_alikes else visible)


class UnsafeReason(str, Enum):
    """The reason for which a text cannot be shown to a judge, escaped or not."""

    FENCE = "fence"  # more backticks in a row than a fence should have
    CONTROL_TOKEN = "control_token"  # reads as a special token of a chat template, whatever is put into it
    CONTROL_CHARACTER = "control_character"  # unprintable, or a lone surrogate that no tokenizer can encode
    HIDDEN_TEXT = "hidden_text"  # characters that a person does not see and a model reads
    PROTOCOL_LINE = "protocol_line"  # reads as a line that only the prompt or the judge may write


# Special tokens of the model families in use; a guard adds those of the judge's own tokenizer.
_CONTROL_TOKEN = re.compile(
    r"<[|｜]"  # whatever follows, however long
    r"|</?s>|<</?SYS>>|</?[a-z0-9]*_[a-z0-9_]*>|<(?:bos|eos|sop|eop)>|</?think>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]|\[(?:gMASK|BOS|EOS)\]"
    r"|<0x[0-9A-F]{2}>",
    re.IGNORECASE,
)
_BACKTICKS = re.compile("`+")
_READS_AS_BACKTICK = re.compile("[`\u00b4\u02ca\u02cb\u1fef\u2035-\u2037\uff40]")
MAX_BACKTICKS = 64  # in a row; a fence longer than any text's would otherwise fill the prompt

# Overrides turn text around, which no translation needs (marks and isolates do their work in Arabic); tag characters
# spell ASCII invisibly, outside the flags of England, Scotland and Wales; long runs of selectors encode bytes.
_FLAG = re.compile("\U0001f3f4[\U000e0061-\U000e007a]{3,6}\U000e007f")
_HIDDEN = re.compile("[\u202d\u202e\U000e0000-\U000e007f]|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4}")

# The headers of prompt and verdict, in any decoration.
_GAP = r"(?:[^\w\\]|_)*"
_HEADER_LINE = re.compile(
    rf"\W*(?:(?:[0-9]{{1,3}}|[A-Z])\W+)?(?:translation|candidate|response){_GAP}(?:[A-Z]|[0-9]{{1,2}}){_GAP}:.*"
    r"|\W*(?:source|translation)[ \t]text:\W*"
    r"|[ \t>*]*\#+[ \t*]*(?:final ranking|scores):\W*",
    re.IGNORECASE,
)
_SIGN = re.compile("[:,>=]")


@dataclass(frozen=True)
class Guard:
    """Shows texts in the prompt of a judge whose tokenizer has `special_tokens`.

    `fenced` is off for a prompt without fences, in which lines of the group protocol may stand. `by_position` is for a
    judge whose replies are read by position, as `reads_as_positions` says.

    Texts are read after NFC, which tokenizers apply and which turns U+1FEF into a backtick, and as their `skeleton`
    with and without look-alikes, so that neither these nor invisible characters in between help.
    """

    special_tokens: frozenset[str] = frozenset()
    fenced: bool = True
    by_position: bool = False

    def escape(self, text: str) -> str:
        """`text` as it is to stand in the prompt; `unsafe_reason` tells whether even that could deceive.

        A backslash goes after the first character of every control token, and before the signs of every line of the
        protocol, whatever backslashes are there, so that escaping can be undone.

        Backslashes of the text part what would otherwise be read together. A text that has any gets one before every
        letter and number that could belong to a verdict.
        """
        return _shown(self, text)[0]

    def unsafe_reason(self, text: str) -> UnsafeReason | None:
        """The reason for which `text` cannot be shown even when it is escaped, None if it can."""
        if any(unicodedata.category(char) in ("Cc", "Cs") for char in {*text}.difference("\t\n\r")):
            return UnsafeReason.CONTROL_CHARACTER
        if _HIDDEN.search(_FLAG.sub("", text)):
            return UnsafeReason.HIDDEN_TEXT
        if self.fenced and _longest_run(text) > MAX_BACKTICKS:
            return UnsafeReason.FENCE
        return _shown(self, text)[1]

    def is_safe(self, text: str) -> bool:
        """True if `text` can be shown to the judge, escaped where needed."""
        return self.unsafe_reason(text) is None

    def is_plain(self, text: str) -> bool:
        """True if `text` can be shown as it is, within the fences of every prompt."""
        return self.is_safe(text) and self.escape(text) == text and fence_for([text]) == FENCE

    def show(self, text: str) -> tuple[str, UnsafeReason | None]:
        """`text` as `escape` returns it, and what it still reads as."""
        read_line = cache(Line)
        cuts_of = cache(lambda reading: self._cuts(reading, read_line))
        if "\\" not in text and not self._deceptive(_readings(text), cuts_of):
            return text, None
        tokens, cuts, signs, versions = set[int](), set[int](), set[int](), [*map(_Version, _pieces(text))]
        for version in versions:
            tokens.update(version.origin[match.start()] + 1 for match in self._token.finditer(version.reading))
            cuts.update(map(version.origin.__getitem__, cuts_of(version.reading)))
        marked = {index for index, char in enumerate(text) if char == "\\"} | tokens | cuts
        are_parted = [version.part(marked) or "\\" in version.reading for version in versions]
        # A word or number that comes apart makes letters and numbers that were none before.
        changed = versions if self.fenced and ("\\" in text or any(are_parted)) else []
        while changed:
            signs.update(index for version in changed for index in version.signs(read_line))
            fresh = signs - marked
            marked |= fresh
            changed = [version for version in versions if version.part(fresh)]
        shown = _marked(text, tokens, cuts, signs)
        return shown, self._deceptive(_readings(shown), cuts_of)

    @cached_property
    def _token(self) -> re.Pattern[str]:
        """Matches where a control token begins. Blank tokens are ignored, for they would refuse everything."""
        tokens = {token for token in self.special_tokens if token.strip() and not _CONTROL_TOKEN.match(token)}
        first = "".join(re.escape(char) for char in sorted({"<", "[", *(token[0] for token in tokens)}))
        own = sorted(map(re.escape, tokens))
        return re.compile(f"(?=[{first}])(?=(?i:{_CONTROL_TOKEN.pattern})|{'|'.join(own) or '(?!)'})")

    def _deceptive(self, readings: Collection[str], cuts_of: Callable[[str], set[int]]) -> UnsafeReason | None:
        if any(map(self._token.search, readings)):
            return UnsafeReason.CONTROL_TOKEN
        return UnsafeReason.PROTOCOL_LINE if any(map(cuts_of, readings)) else None

    def _cuts(self, reading: str, read_line: ReadLine) -> set[int]:
        """The positions of backslashes in the lines that the prompt or the judge could have written."""
        cuts = verdict_cuts(reading, read_line) if self.fenced else set()
        start = 0
        for line in reading.split("\n"):
            is_header = self.fenced and ":" in line and _HEADER_LINE.fullmatch(line)
            if is_header or (self.by_position and reads_as_positions(line)):
                cuts.update(start + match.start() for match in _SIGN.finditer(line))
            start += len(line) + 1
        return cuts


FENCED = Guard()
UNFENCED = Guard(fenced=False)


def fence_for(texts: Iterable[str]) -> str:
    """The fence for these texts: three backticks, or one more than any of them has in a row."""
    return "`" * max([len(FENCE), *(_longest_run(text) + 1 for text in texts)])


def _longest_run(text: str) -> int:
    readings = _readings(text) if _READS_AS_BACKTICK.search(text) else ()
    return max((len(run) for reading in readings for run in _BACKTICKS.findall(reading)), default=0)


def _readings(text: str) -> set[str]:
    """The text itself, as compatibility forms alone read, and with look-alikes: what is a letter differs."""
    compatible = skeleton(text, {})
    readings = {unicodedata.normalize("NFC", cap_marks(text)), compatible}
    has_look_alike = not (_LOOK_ALIKES.isdisjoint(text) and _LOOK_ALIKES.isdisjoint(compatible))
    return {*readings, skeleton(text)} if has_look_alike else readings


class _Version:
    """One reading of a text: `pieces[i]` is how character i reads."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.reading = "".join(pieces)
        self.origin = [index for index, piece in enumerate(pieces) for _ in piece]  # the piece of each character
        self._starts = [*accumulate(map(len, pieces), initial=0)]
        self._kinds = kinds_of(self.reading)
        self._parts = set[int]()

    def part(self, marked: Iterable[int]) -> bool:
        """Split words and numbers at these indexes by backslashes; True if that adds any."""
        kinds, n_parts = self._kinds, len(self._parts)
        starts = map(self._starts.__getitem__, marked)
        self._parts.update(start for start in starts if kinds[start] == kinds[start + 1] != " ")
        return len(self._parts) > n_parts

    def signs(self, read_line: ReadLine) -> Iterable[int]:
        """The indexes of the pieces in which signs begin."""
        cuts = sign_cuts(_marked(self.reading, self._parts), read_line)
        parts = map(self.origin.__getitem__, self._parts)
        return map(sorted([*self.origin, *parts]).__getitem__, cuts) if cuts else ()


def _pieces(text: str) -> list[list[str]]:
    """The characters of a text but backslashes, in each of its `_readings` that differs."""
    chars = [*{*text} - {"\\", "\0"}]  # the latter keeps them apart
    skeletons = (skeleton("\0".join(chars), look_alikes).split("\0") for look_alikes in ({}, _PLAIN))
    forms = [{"\\": "", "\0": "\0", **dict(zip(chars, pieces, strict=False))} for pieces in (chars, *skeletons)]
    return [[*map(form.__getitem__, text)] for index, form in enumerate(forms) if form not in forms[:index]]


def _marked(text: str, *indexes: Iterable[int]) -> str:
    """The text with a backslash before the character of each of these indexes."""
    ends = sorted(chain(*indexes))
    return "\\".join(map(text.__getitem__, map(slice, [0, *ends], [*ends, len(text)])))


@lru_cache(maxsize=128)  # who asks whether texts are safe goes on to escape them
def _shown(guard: Guard, text: str) -> tuple[str, UnsafeReason | None]:
    return guard.show(text)
