"""Detect lines that a reader of scores or of rankings could take for a verdict, however they are punctuated.

Not a list of separators: a line reads as scores where two labels, each a letter or an ordinal, have a number of their
own, or letters a place, with nothing but punctuation or a word or two between, and as a ranking where a sign of
comparison stands between two capitals.

A backslash between two of them ends the reading. Lines are read as their `skeleton`, in one pass each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import NamedTuple

_APART = "\u0e00-\u0eff\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uac00-\ud7af"  # letters of scripts without spaces
_LETTER = rf"[^\W\d_{_APART}]"
_SUFFIX = r"(?:st|nd|rd|th)(?![^\W_])"
_TOKEN = re.compile(rf"(\d+(?:{_SUFFIX})?|{_LETTER}+|[^\W_]|[#№])")
_WORD = re.compile(_LETTER)
_BLANK = re.compile(r"[\s._]*")
_COMPARISON = re.compile("[<=>≤≥≪≫≺≻«»→⇒≈≡]")
_CUT = re.compile("[:,<=>≤≥≪≫≺≻«»→⇒≈≡]")
_LINK = re.compile(r"[:=|(){}\]\"→–—~]|->|\. | - ")  # ties a small letter or an ordinal to a number
_LINKED = re.compile(rf"(?:[^\w\\]|_)*(?:{_LINK.pattern})")
_TO_LABEL = re.compile(r"[:=→>(]|\b(?:for|to)\b")  # ties a number to the letter behind it
_NUMBER_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_ORDINAL_WORDS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_NUMBERS = {word: str(value) for value, word in enumerate(_NUMBER_WORDS)}
_ORDINALS = {word: str(value) for value, word in enumerate(_ORDINAL_WORDS, 1)}
_NUMERALS = frozenset("〇零一二三四五六七八九十❶❷❸❹❺❻❼❽❾❿")
_LETTERS = dict(zip("甲乙丙丁", "ABCD", strict=True))
_NOUNS = frozenset(("#", "№", "no", "number", "translation", "candidate", "response", "answer", "option", "第"))
_SPELT = f"(?i:(?=[efnostz])(?:{'|'.join((*_NUMBERS, *_ORDINALS))}))"
# What a line must have to be a verdict: most have none of it.
_VERDICT = re.compile(rf"[\d{_COMPARISON.pattern[1:-1]}{''.join(_NUMERALS)}]|{_SPELT}")
# Whatever a sign begins with.
_SIGN = (
    rf"(?=[\da-zA-Z甲乙丙丁{''.join(_NUMERALS)}])"
    rf"(?:(?<!\d)\d|[甲乙丙丁{''.join(_NUMERALS)}]|(?<!{_LETTER})(?:[A-Za-z]|{_SPELT})(?!{_LETTER}))"
)
_TWO_SIGNS = re.compile(rf"(?s:{_SIGN}.*?{_SIGN})")
_SHORT = 16  # characters of a token: what longer ones may be is not remembered
_MAX_LABEL = 26  # as many candidates have names
_MAX_SCORE = 100  # a higher number is one only where a sign ties it to its label
_SCORES = frozenset((*range(11), _MAX_SCORE))  # what an ordinal may be tied to
_MAX_WORDS = 2  # between a label and its number, and in a line of nothing but letters and numbers
_MAX_ITEM_WORDS = 4  # in a line that is one item of a list of scores


@dataclass(frozen=True, slots=True)
class Sign:
    """A letter, an ordinal or a number."""

    letter: str = ""
    number: str = ""
    ordinal: str = ""
    label: str = ""  # the name of a candidate to a reader
    is_capital: bool = False
    is_in_reach: bool = False  # what a label without a link may have for a score
    is_score: bool = False  # what an ordinal may be tied to
    is_spelt: bool = False  # an ordinal that is no number
    is_small: bool = False  # a small letter


class Signs(NamedTuple):
    """The signs of a line, in columns: a hundred thousand small tuples would keep the garbage collector busy."""

    signs: list[Sign]
    starts: list[int]  # their indexes into the line
    gaps: list[str]  # what stands between each and the one before
    n_words: list[int]  # of that
    are_named: list[bool]  # of ordinals that are spelt out and signs behind the word for what they count
    n_words_in_all: int

    def pairs(self) -> Iterable[tuple[Sign, Sign, str, int, bool, int, int]]:
        """Signs that follow on each other, gap and words between, True if the first is named, and both indexes."""
        signs, starts, gaps, n_words, are_named, _ = self
        return zip(signs, signs[1:], gaps[1:], n_words[1:], are_named, starts, starts[1:], strict=False)


@dataclass(frozen=True)
class Line:
    """A line and its readings. Lines come back, in a text or in another reading of it: they are worth a memory."""

    text: str

    @cached_property
    def signs(self) -> Signs:
        """The letters, ordinals and numbers; none if the line can be no verdict."""
        return _signs_of(self.text if _VERDICT.search(self.text) else "")

    @cached_property
    def _parts(self) -> list[str]:
        """The parts between backslashes that have two signs, each once: most escaped lines have none."""
        return [part for part in {*self.text.split("\\")} if _VERDICT.search(part) and _TWO_SIGNS.search(part)]

    @cached_property
    def _tied(self) -> list[Signs]:
        return [self.signs if part == self.text else _signs_of(part) for part in self._parts]

    @cached_property
    def _labels(self) -> set[str]:
        """Labels with a number of their own, and letters with a place."""
        labels = set[str]().union(*map(_scored_labels, self._tied))
        if len(labels) < 2 and any(sign.is_small for tied in self._tied for sign in tied.signs):
            without = (_signs_of(part, small_letters=False) for part in self._parts)  # they may begin words as well
            return labels.union(*map(_scored_labels, without))
        return labels

    @cached_property
    def items(self) -> set[str]:
        """The labels of a line that can be part of a list of scores."""
        return self._labels if self._labels and self.signs.n_words_in_all <= _MAX_ITEM_WORDS else set()

    @cached_property
    def is_verdict(self) -> bool:
        """True if the line alone is a verdict to a reader."""
        if len(self._labels) > 1 or any(map(_is_ranking, self._tied)):
            return True
        return any(map(_is_table, self._tied)) and self.signs.n_words_in_all <= _MAX_WORDS

    @cached_property
    def cuts(self) -> set[int]:
        """Every sign that could tie two of the signs; where there is none between two that could be, the second."""
        uncut = {gap for gap in {*self.signs.gaps} if not _CUT.search(gap)}
        cuts = {match.start() for match in _CUT.finditer(self.text)}
        return cuts | {
            start
            for sign, other, gap, _, is_named, _, start in self.signs.pairs()
            if gap in uncut and (sign.letter or other.letter or is_named or _LINK.search(gap))
        }


ReadLine = Callable[[str], Line]  # `Line`, or that with a memory


def kinds_of(text: str) -> str:
    """A blank, the kind of each character and a blank: 0 in a number, a in a word, blank elsewhere."""
    kinds = {ord(char): "0" if char.isdecimal() else "a" if _WORD.match(char) else " " for char in {*text}}
    return f" {text.translate(kinds)} "


def _signs_of(line: str, small_letters: bool = True) -> Signs:
    """The signs of `line`, with or without its small letters."""
    parts = _TOKEN.split(line)  # tokens, and what stands between them
    ends = [*accumulate(map(len, parts))]
    sign_of = {text: _read(text) if len(text) < _SHORT else _read.__wrapped__(text) for text in {*parts[1::2]}}
    if all(sign and not sign.is_small for sign in sign_of.values()):  # the most that a line can have
        signs = [sign for sign in map(sign_of.__getitem__, parts[1::2]) if sign]
        return Signs(signs, ends[:-1:2], parts[:-1:2], [0] * len(signs), [sign.is_spelt for sign in signs], 0)
    signs, starts, gaps, words, are_named = list[Sign](), list[int](), list[str](), list[int](), list[bool]()
    end = n_words = n_before = word_end = 0
    word = ""
    for text, start, stop in zip(parts[1::2], ends[::2], ends[1::2], strict=False):
        sign = sign_of[text]
        # A small letter without a link is an article or a preposition.
        if sign and (not sign.is_small or (small_letters and _LINKED.match(line, stop))):
            is_counted = word.lower() in _NOUNS and _BLANK.fullmatch(line, word_end, start) is not None
            signs.append(sign)
            starts.append(start)
            gaps.append(line[end:start])
            words.append(n_words - n_before)
            are_named.append(is_counted or sign.is_spelt)
            end, n_before, word = stop, n_words, ""
        else:
            # Without a space before, of another script or one without spaces, it is no new word.
            n_words += text[0].isalpha() and not line[start - 1 : start].isalpha()
            word, word_end = text, stop
    return Signs(signs, starts, gaps, words, are_named, n_words)


@lru_cache(maxsize=4096)
def _read(text: str) -> Sign | None:
    """The sign that a token may be."""
    text = _LETTERS.get(text, text)
    if text.isascii() and len(text) == 1 and text.isalpha():
        return Sign(letter=text, label=text.upper(), is_capital=text.isupper(), is_small=text.islower())
    number = text if text.isdecimal() or text in _NUMERALS else _NUMBERS.get(text.lower(), "")
    ordinal = _ORDINALS.get(text.lower()) or (text[:-2] if text[0].isdecimal() and not number else number)
    if not (ordinal.isdecimal() and len(ordinal) < 3 and ordinal[0] != "0" and int(ordinal) <= _MAX_LABEL):
        ordinal = ""
    if not (number or ordinal):
        return None
    digits = number or ordinal
    value = int(digits) if digits.isdecimal() and len(digits) < 4 else math.inf
    is_score = value in _SCORES and len(str(value)) == len(digits)  # 00 is the minute of a time of day
    is_in_reach = value <= _MAX_SCORE or not digits.isdecimal()
    return Sign("", number, ordinal, ordinal, False, is_in_reach, is_score, is_spelt=not number)


def _scored_labels(signs: Signs) -> set[str]:
    """The labels with a number of their own, and the letters with a place, until there are two."""
    labels: set[str] = set()
    owned = -1
    for sign, other, gap, n_words, is_named, index, start in signs.pairs():
        if not gap or n_words > _MAX_WORDS:
            continue
        is_number = other.number or (sign.letter and other.ordinal)
        if is_number and sign.label and index != owned and _has_number(sign, is_named, other, gap, n_words):
            labels.add(sign.label)
            owned = start if other.number else owned  # a place may be the label of what follows
        if sign.number and other.is_capital and _TO_LABEL.search(gap):
            labels.add(other.letter)
        if len(labels) > 1:
            break
    return labels


def _has_number(label: Sign, is_named: bool, number: Sign, gap: str, n_words: int) -> bool:
    """True if the number is that of the label before it, from which `gap` with so many words parts it."""
    if label.is_capital or is_named:
        return number.is_in_reach or _LINK.search(gap) is not None
    return not n_words and bool(label.letter or number.is_score) and _LINK.search(gap) is not None


def _is_ranking(signs: Signs) -> bool:
    """True if a sign of comparison stands between two different capitals."""
    comparing = {gap for gap in {*signs.gaps} if _COMPARISON.search(gap)}
    return bool(comparing) and any(
        gap in comparing and sign.is_capital and other.is_capital and sign.letter != other.letter and not n_words
        for sign, other, gap, n_words, *_ in signs.pairs()
    )


def _is_table(signs: Signs) -> bool:
    """True if there are two capitals and two numbers, in any order."""
    n_numbers = sum(not sign.letter for sign in signs.signs)
    return n_numbers > 1 and len({sign.letter for sign in signs.signs if sign.is_capital}) > 1


def _placed(lines: Sequence[Line]) -> Iterable[tuple[int, Line]]:
    """The lines of a text, each with its index."""
    return zip(accumulate((len(line.text) + 1 for line in lines), initial=0), lines, strict=False)


def verdict_cuts(text: str, read_line: ReadLine = Line) -> set[int]:
    """Indexes into `text` before which backslashes end every reading of its lines as a verdict.

    Items on lines of their own make a list of scores where they have different labels.
    """
    lines = [*map(read_line, text.split("\n"))]
    is_list = len(set().union(*(line.items for line in lines))) > 1
    guarded = ((start, line) for start, line in _placed(lines) if line.is_verdict or (is_list and line.items))
    return {start + cut for start, line in guarded for cut in line.cuts}


def sign_cuts(text: str, read_line: ReadLine = Line) -> list[int]:
    """Indexes into `text` before which backslashes end every reading of its lines, wherever other backslashes are."""
    lines = [*map(read_line, text.split("\n"))]
    return [start + at for start, line in _placed(lines) if len(line.signs.starts) > 1 for at in line.signs.starts]
