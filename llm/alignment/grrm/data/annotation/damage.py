"""Translations made worse on purpose, so that a judge meets more than one policy's mistakes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

_WORD = re.compile(r"\d+|[^\W\d_]+")


def drop_word(text: str, other: str, rng: random.Random) -> str:
    """Leave one word or number out."""
    return _replace_word(text, lambda _: "", rng)


def swap_words(text: str, other: str, rng: random.Random) -> str:
    """Exchange two words or numbers."""
    words = list(_WORD.finditer(text))
    if len(words) < 2:
        return text
    first, second = sorted(rng.sample(words, 2), key=lambda word: word.start())
    between = text[first.end() : second.start()]
    return text[: first.start()] + second.group() + between + first.group() + text[second.end() :]


def change_number(text: str, other: str, rng: random.Random) -> str:
    """Write another digit somewhere in a number."""
    digits = [position for position, letter in enumerate(text) if letter.isdigit()]
    if not digits:
        return drop_word(text, other, rng)
    position = rng.choice(digits)
    digit = rng.choice([digit for digit in "0123456789" if digit != text[position]])
    return text[:position] + digit + text[position + 1 :]


def borrow_word(text: str, other: str, rng: random.Random) -> str:
    """Put a word of another sentence of the same language in the place of one."""
    words = _WORD.findall(other)
    return _replace_word(text, lambda _: rng.choice(words), rng) if words else text


def cut_short(text: str, other: str, rng: random.Random) -> str:
    """Keep the first half."""
    return text[: max(1, len(text) // 2)].rstrip()


DAMAGES: tuple[Callable[[str, str, random.Random], str], ...] = (
    drop_word,
    swap_words,
    change_number,
    borrow_word,
    cut_short,
)


def damage(text: str, other: str, rng: random.Random) -> str:
    """The text after one of `DAMAGES`; `other` is a sentence of the same language."""
    return rng.choice(DAMAGES)(text, other, rng)


def _replace_word(text: str, replacement: Callable[[str], str], rng: random.Random) -> str:
    words = list(_WORD.finditer(text))
    if not words:
        return text
    word = rng.choice(words)
    return " ".join((text[: word.start()] + replacement(word.group()) + text[word.end() :]).split())
