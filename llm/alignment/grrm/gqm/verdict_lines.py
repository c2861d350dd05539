"""Detect lines that a reader of scores or of rankings could take for a verdict, however they are punctuated.

Not a list of separators: a line reads as scores where two labels, each a letter or an ordinal, have a number of their
own, or letters a place, with nothing but punctuation or a word or two between, and as a ranking where a sign of
comparison stands between two capitals.

A backslash between two of them ends the reading. Lines are read as their `skeleton`, in one pass each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

_APART = "\u0e00-\u0eff\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uac00-\ud7af"  # letters of scripts without spaces
_LETTER = rf"[^\W\d_{_APART}]"
# The last one is a run of marks.
_TOKEN = re.compile(rf"\d+(?:(?:st|nd|rd|th)(?![^\W_]))?|{_LETTER}+|[^\W_]|[.#№]|[^\w\s.#№][^\w.#№]*")
_SAME_TOKEN = re.compile(rf"\d\d|{_LETTER}{{2}}")
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
# What a line must have to be a verdict: most have none of it.
_VERDICT = re.compile(rf"\d|{_COMPARISON.pattern}|[{''.join(_NUMERALS)}]|(?i:{'|'.join((*_NUMBERS, *_ORDINALS))})")
# Whatever a sign begins with, and two of those without a backslash between: most escaped lines have none.
_SIGN = (
    rf"(?<!\d)\d|[甲乙丙丁{''.join(_NUMERALS)}]"
    rf"|(?<!{_LETTER})(?:[A-Za-z]|(?i:{'|'.join((*_NUMBERS, *_ORDINALS))}))(?!{_LETTER})"
)
_TWO_SIGNS = re.compile(rf"(?:{_SIGN})[^\\]*?(?:{_SIGN})")
_SHORT = 16  # characters of a token: what longer ones may be is not remembered
_MAX_LABEL = 26  # as many candidates have names
_MAX_SCORE = 100  # a higher number is one only where a sign ties it to its label
_SCORES = frozenset((*range(11), _MAX_SCORE))  # what an ordinal may be tied to
_MAX_WORDS = 2  # between a label and its number, and in a line of nothing but letters and numbers
_MAX_ITEM_WORDS = 4  # in a line that is one item of a list of scores


@dataclass(slots=True)
class Sign:
    """A letter, an ordinal or a number: index into the line, and what stands between it and the one before."""

    start: int
    letter: str = ""
    number: str = ""
    ordinal: str = ""
    gap: str = ""
    n_words: int = 0
    is_named: bool = False  # an ordinal that is spelt out, or behind the word for what it counts

    @property
    def label(self) -> str:
        """The name of a candidate to a reader."""
        return self.letter.upper() or self.ordinal


ReadLine = Callable[[str], tuple[list[Sign], int]]  # `signs_of`, or that with a memory


@lru_cache(maxsize=4096)
def in_same_token(before: str, after: str) -> bool:
    """True if two characters side by side belong to the same word or number."""
    return _SAME_TOKEN.fullmatch(before + after) is not None


def signs_of(line: str) -> tuple[list[Sign], int]:
    """The letters, ordinals and numbers of `line`, and how many other words it has; none if it can be no verdict."""
    signs: list[Sign] = []
    if not _VERDICT.search(line):
        return signs, 0
    end = n_words = n_before = 0
    word = ""
    for match in _TOKEN.finditer(line):
        text = match[0]
        if not text[0].isalnum():  # most of hostile texts
            word = text if text in _NOUNS else word if text == "." else ""
            continue
        letter, number, ordinal = _read(text) if len(text) < _SHORT else _read.__wrapped__(text)
        if letter.islower() and not _LINKED.match(line, match.end()):
            letter = ""  # an article or a preposition
        if letter or number or ordinal:
            gap = line[end : match.start()]
            is_named = word in _NOUNS or bool(ordinal and not number)
            signs.append(Sign(match.start(), letter, number, ordinal, gap, n_words - n_before, is_named))
            end, n_before = match.end(), n_words
        elif text[0].isalpha():  # without a space before, of another script or one without spaces, it is no new word
            n_words += not line[match.start() - 1 : match.start()].isalpha()
        word = text.lower() if text[0].isalpha() else ""
    return signs, n_words


@lru_cache(maxsize=4096)
def _read(text: str) -> tuple[str, str, str]:
    """The letter, the number and the ordinal that a token may be."""
    text = _LETTERS.get(text, text)
    if text.isascii() and len(text) == 1 and text.isalpha():
        return text, "", ""
    number = text if text.isdecimal() or text in _NUMERALS else _NUMBERS.get(text.lower(), "")
    ordinal = _ORDINALS.get(text.lower()) or (text[:-2] if text[0].isdecimal() and not number else number)
    is_ordinal = ordinal.isdecimal() and len(ordinal) < 3 and ordinal[0] != "0" and int(ordinal) <= _MAX_LABEL
    return "", number, ordinal if is_ordinal else ""


def scored_labels(signs: Sequence[Sign]) -> set[str]:
    """The labels with a number of their own, and the letters with a place."""
    labels = set()
    owned = None
    for sign, other in pairwise(signs):
        if "\\" in other.gap or other.n_words > _MAX_WORDS:
            continue
        number = other.number or (other.ordinal if sign.letter else "")
        if number and sign.label and sign is not owned and _has_number(sign, number, other.gap, other.n_words):
            labels.add(sign.label)
            owned = other if other.number else owned  # a place may be the label of what follows
        if sign.number and other.letter.isupper() and _TO_LABEL.search(other.gap):
            labels.add(other.letter)
    return labels


def _has_number(label: Sign, number: str, gap: str, n_words: int) -> bool:
    """True if the number is that of the label before it, from which `gap` with so many words parts it."""
    value = int(number) if number.isdecimal() and len(number) < 4 else math.inf
    is_linked = _LINK.search(gap) is not None
    if label.letter.isupper() or label.is_named:
        return bool(gap) and (is_linked or value <= _MAX_SCORE or not number.isdecimal())
    is_score = value in _SCORES and len(str(value)) == len(number)  # 00 is the minute of a time of day
    return is_linked and not n_words and (bool(label.letter) or is_score)


def is_ranking(signs: Sequence[Sign]) -> bool:
    """True if a sign of comparison stands between two different capitals."""
    return any(
        sign.letter.isupper()
        and other.letter.isupper()
        and sign.letter != other.letter
        and not other.n_words
        and "\\" not in other.gap
        and _COMPARISON.search(other.gap)
        for sign, other in pairwise(signs)
    )


def is_table(signs: Sequence[Sign]) -> bool:
    """True if two capitals and two numbers follow on each other, in any order."""
    letters: set[str] = set()
    n_numbers = 0
    for sign in signs:
        if "\\" in sign.gap:
            letters, n_numbers = set(), 0
        letters |= {sign.letter} if sign.letter.isupper() else set()
        n_numbers += bool(sign.number or sign.ordinal)
        if len(letters) > 1 and n_numbers > 1:
            return True
    return False


def verdict_cuts(text: str, read_line: ReadLine = signs_of) -> set[int]:
    """Indexes into `text` before which backslashes end every reading of its lines as a verdict.

    Items on lines of their own make a list of scores where they have different labels.
    """
    lines = text.split("\n")
    read = [read_line(line) if _TWO_SIGNS.search(line) else ([], 0) for line in lines]
    labels = [scored_labels(signs) for signs, _ in read]
    items = [own if n_words <= _MAX_ITEM_WORDS else set() for (_, n_words), own in zip(read, labels, strict=True)]
    is_list = len(set().union(*items)) > 1
    cuts: set[int] = set()
    start = 0
    for line, (signs, n_words), own, item in zip(lines, read, labels, items, strict=True):
        is_scores = len(own) > 1 or (is_list and item) or (n_words <= _MAX_WORDS and is_table(signs))
        if is_scores or is_ranking(signs):
            cuts.update(start + cut for cut in _cuts(line, signs))
        start += len(line) + 1
    return cuts


def sign_cuts(text: str, read_line: ReadLine = signs_of) -> set[int]:
    """Indexes into `text` before which backslashes end every reading of its lines, wherever other backslashes are."""
    cuts: set[int] = set()
    start = 0
    for line in text.split("\n"):
        signs, _ = read_line(line)
        cuts.update(start + sign.start for sign in signs if len(signs) > 1)
        start += len(line) + 1
    return cuts


def _cuts(line: str, signs: Sequence[Sign]) -> set[int]:
    """Every sign that could tie two of `signs`; where there is none between two that could be tied, the second."""
    bare = (
        other.start
        for sign, other in pairwise(signs)
        if not _CUT.search(other.gap) and (sign.letter or other.letter or sign.is_named or _LINK.search(other.gap))
    )
    return {match.start() for match in _CUT.finditer(line)}.union(bare)
