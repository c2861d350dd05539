"""Phrases, abstract content that can be worded in any language, and the drawing of their values."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, TypeVar

Value = TypeVar("Value")
Side = Literal["train", "heldout", "dev"]
MOST_DRAWS = 20_000
HELD_OUT_SHARE = 0.06  # of all values; a half of them are held out for development, see `side_of`


@dataclass(frozen=True, slots=True)
class Phrase:
    """Something that can be said in every language: `content` names its values, `render` words it.

    `render(language)` returns None where the language has a gap.
    """

    content: tuple[str, ...]
    render: Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Draws:
    """Source of random values that all belong to one side of the split.

    A value's side is decided by a hash of its name, whatever the seed, the languages or the number of rows: a corpus
    built with other settings never shows in training what this one holds out.
    """

    rng: random.Random
    side: Side

    def pick(self, draw: Callable[[random.Random], Value], name_of: Callable[[Value], str]) -> tuple[Value, str]:
        """Draw until the value is on this side, and return it with its name.

        Raises ValueError when none turns up (too few distinct values).
        """
        for _ in range(MOST_DRAWS):
            value = draw(self.rng)
            name = name_of(value)
            if side_of(name) == self.side:
                return value, name
        raise ValueError(f"no value such as {name!r} is on the {self.side} side")


def side_of(name: str) -> Side:
    """The side of the value called `name`: training, or one of the two halves of what is held out."""
    fraction = hash_fraction(name)
    if fraction >= HELD_OUT_SHARE:
        return "train"
    return "dev" if fraction < HELD_OUT_SHARE / 2 else "heldout"


def hash_fraction(name: str) -> float:
    """A number in [0, 1) that depends on the name only."""
    digest = blake2b(name.encode(), digest_size=8, person=b"grrm-held-out").digest()
    return int.from_bytes(digest, "big") / 2**64
