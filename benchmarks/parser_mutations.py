"""Seeded changes of the last line of a judge's reply, for parser_table.py."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Mutate = Callable[["Line", random.Random], str]


@dataclass(frozen=True, slots=True)
class Line:
    """The last line of a reply, taken apart: `A: 7` or, in a ranking, `A`."""

    items: tuple[str, ...]
    joints: tuple[str, ...]  # what stands between the items

    def join(self, items: Sequence[str] | None = None) -> str:
        """The line with other items."""
        words = list(items or self.items)
        return "".join(item + joint for item, joint in zip(words, (*self.joints, ""), strict=True))


def take_apart(line: str) -> Line:
    """The items of a score or ranking line and what joins them."""
    parts = re.split(r"(\s*[,>=]\s*)", line)
    return Line(tuple(parts[::2]), tuple(parts[1::2]))


def _each_score(line: Line, change: Callable[[str], str]) -> str:
    return line.join([re.sub(r"-?\d+", lambda match: change(match[0]), item) for item in line.items])


def _single_score(line: Line, rng: random.Random, change: Callable[[str], str]) -> str:
    items = list(line.items)
    index = rng.randrange(len(items))
    items[index] = re.sub(r"-?\d+", lambda match: change(match[0]), items[index])
    return line.join(items)


def _labelled(line: Line, _: random.Random) -> str:
    return f"Final {'scores' if ':' in line.items[0] else 'ranking'}: {line.join()}"


def _shuffled(line: Line, rng: random.Random) -> str:
    return line.join(rng.sample(line.items, len(line.items)))


def _full_width(line: Line, _: random.Random) -> str:
    return line.join().translate({ord(c): ord(c) + 0xFEE0 for c in "0123456789:,>="})


def _dropped(line: Line, rng: random.Random) -> str:
    items, joints = list(line.items), list(line.joints)
    index = rng.randrange(len(items))
    del items[index], joints[min(index, len(joints) - 1)]
    return Line(tuple(items), tuple(joints)).join()


def _repeated(line: Line, rng: random.Random) -> str:
    """A candidate once more at the end, with another score."""
    item = rng.choice(line.items)
    again = re.sub(r"\d+", lambda match: str((int(match[0]) + rng.randrange(1, 10)) % 11), item)
    return line.join() + line.joints[-1] + again


def _renamed(line: Line, rng: random.Random) -> str:
    """A candidate under a name that none has."""
    items = list(line.items)
    index = rng.randrange(len(items))
    items[index] = rng.choice(["Z", items[index][0].lower(), "1"]) + items[index][1:]
    return line.join(items)


def _exchanged(line: Line, rng: random.Random) -> str:
    """Two candidates under each other's name, so that each has the other's score."""
    items = list(line.items)
    first, second = rng.sample(range(len(items)), 2)
    items[first], items[second] = items[second][0] + items[first][1:], items[first][0] + items[second][1:]
    return line.join(items)


def _cut(line: Line, rng: random.Random) -> str:
    text = line.join()
    return text[: rng.randrange(1, len(text))]


def _typo(line: Line, rng: random.Random) -> str:
    """One character deleted, replaced or inserted."""
    text, sign = line.join(), rng.choice("ABZ0189:,>= .-*\n")
    position = rng.randrange(len(text))
    return text[:position] + rng.choice(["", sign, sign + text[position]]) + text[position + 1 :]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change of the last line; `types` are the prompt types it can be applied to."""

    kind: str
    change: Mutate
    types: tuple[str, ...] = ("ranking_score", "score", "ranking")


SCORED = ("ranking_score", "score")
MUTATIONS: dict[str, Mutation] = {
    "bold": Mutation("harmless", lambda line, _: f"**{line.join()}**"),
    "backticks": Mutation("harmless", lambda line, _: f"`{line.join()}`"),
    "full stop": Mutation("harmless", lambda line, _: f"{line.join()}."),
    "label": Mutation("harmless", _labelled),
    "full-width signs": Mutation("harmless", _full_width),
    "decimals": Mutation("harmless", lambda line, _: _each_score(line, lambda score: f"{score}.0"), SCORED),
    "out of ten": Mutation("harmless", lambda line, _: _each_score(line, lambda score: f"{score}/10"), SCORED),
    "semicolons": Mutation("harmless", lambda line, _: line.join().replace(",", ";"), SCORED),
    "other order": Mutation("harmless", _shuffled, SCORED),
    "score above ten": Mutation(
        "harmful",
        lambda line, rng: _single_score(line, rng, lambda score: str(int(score) + rng.randrange(11, 90))),
        SCORED,
    ),
    "negative score": Mutation(
        "harmful", lambda line, rng: _single_score(line, rng, lambda score: f"-{int(score) + 1}"), SCORED
    ),
    "candidate left out": Mutation("harmful", _dropped),
    "candidate repeated": Mutation("harmful", _repeated),
    "unknown candidate": Mutation("harmful", _renamed),
    "candidates exchanged": Mutation("harmful", _exchanged, SCORED),
    "cut off": Mutation("harmful", _cut),
    "typing error": Mutation("harmful", _typo),
}
