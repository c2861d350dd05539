"""The translation inside a policy's response.

Training types, chosen by `extractor_type`: `line`, `codeblock`, `oneline`, `none`. Inference types, named after the
translation prompt: `Tower`, `Tower.lastl`, `codeblock-think`, `SSR`, `seedx`, `seedx-cot`. All of them answer None
when there is no translation: nothing found, or nothing but blanks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from grrm.errors import require_known
from grrm.gqm.prompts import FENCE

# What Markdown calls an info string: one bare word on the opening fence's own line, with lines after it.
_INFO_STRING = re.compile(r"[A-Za-z][A-Za-z0-9_+#-]*[ \t\r]*\n")
TEMPERATURE_STEP = 0.1
MAX_TEMPERATURE = 1.0
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def extract_translation(response: str, extractor_type: str, *, strip_info_string: bool = True) -> str | None:
    """The translation in `response`, stripped, or None if there is none.

    `codeblock` (training) wants exactly one fenced block, at the end; `codeblock-think` (inference) takes the last
    of any number. Both drop the opening fence's info string (```` ```text ````) unless `strip_info_string` is off.
    Raises UserError for an extractor type that does not exist.
    """
    require_known("extractor_type", extractor_type, _EXTRACTORS)
    translation = _EXTRACTORS[extractor_type](response.strip())
    if translation is not None and strip_info_string and extractor_type.startswith("codeblock"):
        translation = _INFO_STRING.sub("", translation, count=1) if _INFO_STRING.match(translation) else translation
    return (translation or "").strip() or None


def _last_line(text: str) -> str:
    return text.rpartition("\n")[2]


def _single_line(text: str) -> str | None:
    return None if "\n" in text else text


def _last_block(text: str) -> str | None:
    if not text.endswith(FENCE):
        return None
    _, opening, content = text.removesuffix(FENCE).rpartition(FENCE)
    return content if opening else None


def _only_block(text: str) -> str | None:
    return _last_block(text) if text.count(FENCE) == 2 else None


def _answer_tag(text: str) -> str | None:
    content, closing, _ = text.partition("<answer>")[2].partition("</answer>")
    return content if closing else None


def _before_cot(text: str) -> str:
    return text.partition("[COT]")[0]


_EXTRACTORS: dict[str, Callable[[str], str | None]] = {
    "line": _last_line,
    "codeblock": _only_block,
    "oneline": _single_line,
    "none": str,
    "Tower": str,
    "Tower.lastl": _last_line,
    "codeblock-think": _last_block,
    "SSR": _answer_tag,
    "seedx": str,
    "seedx-cot": _before_cot,
}
EXTRACTOR_TYPES: tuple[str, ...] = tuple(_EXTRACTORS)


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
