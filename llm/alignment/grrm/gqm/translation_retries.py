"""Drawing translations again, a little hotter each time, until one can be extracted from every reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

TEMPERATURE_STEP = 0.1
MAX_TEMPERATURE = 1.0


class DrawReplies(Protocol[T_co]):
    """Generation, bound to its sources, the number of replies per source and everything else that stays the same."""

    def __call__(self, rows: Sequence[int], *, temperature: float, attempt: int) -> Sequence[Sequence[T_co]]:
        """The replies to the sources with these row numbers, order kept; `attempt` (0, 1, …) is there for seeds."""
        ...


@dataclass(frozen=True, slots=True)
class TranslationDraws(Generic[T]):
    """The last replies to one source; `translations[k]` is what `replies[k]` holds, None if it holds none."""

    replies: tuple[T, ...]
    translations: tuple[str | None, ...]
    attempts: int

    @property
    def is_complete(self) -> bool:
        """True when every reply holds a translation."""
        return None not in self.translations


def retry_temperature(temperature: float, attempt: int) -> float:
    """min(temperature + 0.1 * attempt, 1), but never below the temperature asked for (GRRM's translation tool)."""
    return max(temperature, min(temperature + TEMPERATURE_STEP * attempt, MAX_TEMPERATURE))


def draw_translations(
    n_sources: int,
    draw: DrawReplies[T],
    extract: Callable[[T], str | None],
    *,
    temperature: float = 0.0,
    retries: int = 4,
) -> list[TranslationDraws[T]]:
    """The replies to each of `n_sources` sources, order kept: a batch for all, then batches of the incomplete ones.

    A source with any reply that `extract` finds no translation in has all its replies drawn again, at most `retries`
    times, so the replies of a source always come from one temperature. What is incomplete after that stays so.
    Raises ValueError if `draw` does not answer every row it was asked for, or for a negative number of retries. No
    sources: nothing is drawn.
    """
    if retries < 0:
        raise ValueError(f"retries must not be negative, got {retries}")
    draws: dict[int, TranslationDraws[T]] = {}
    open_rows = list(range(n_sources))
    for attempt in range(retries + 1):
        if not open_rows:
            break
        replies_of_rows = draw(open_rows, temperature=retry_temperature(temperature, attempt), attempt=attempt)
        for row, replies in zip(open_rows, replies_of_rows, strict=True):
            draws[row] = TranslationDraws(tuple(replies), tuple(map(extract, replies)), attempt + 1)
        open_rows = [row for row in open_rows if not draws[row].is_complete]
    return [draws[row] for row in range(n_sources)]
