"""What a phrase is: abstract content that can be worded in any language, and how its values are drawn."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeVar

Value = TypeVar("Value")
MOST_DRAWS = 20_000


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

    A value belongs to the held-out side when a hash of its name says so, whatever the seed, the languages or
    the number of rows: a corpus built with other settings never shows in training what this one holds out.
    """

    rng: random.Random
    held_out: bool
    held_out_share: float = 0.06

    def pick(self, draw: Callable[[random.Random], Value], name: Callable[[Value], str]) -> Value:
        """Draw until the value is on this side. Raises ValueError when none turns up (too few distinct values)."""
        for _ in range(MOST_DRAWS):
            value = draw(self.rng)
            if is_held_out(name(value), self.held_out_share) == self.held_out:
                return value
        raise ValueError(f"no value such as {name(value)!r} is on the {'held-out' if self.held_out else 'train'} side")


def is_held_out(name: str, share: float) -> bool:
    """Whether the value called `name` belongs to the held-out `share` (0 to 1) of all values."""
    digest = blake2b(name.encode(), digest_size=8, person=b"grrm-held-out").digest()
    return int.from_bytes(digest, "big") < share * 2**64
