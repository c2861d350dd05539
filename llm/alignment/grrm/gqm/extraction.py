"""The translation inside a policy's response.

Training types, chosen by `extractor_type`: `line`, `codeblock`, `oneline`, `none`. Inference types, named after the
translation prompt: `Tower`, `Tower.lastl`, `codeblock-think`, `SSR`, `seedx`, `seedx-cot`. All of them answer None
when there is no translation: nothing found, or nothing but blanks.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from grrm.errors import require_known
from grrm.gqm.prompts import FENCE

# What Markdown calls an info string: one bare word on the opening fence's own line, with lines after it.
_INFO_STRING = re.compile(r"[ \t]*[A-Za-z][A-Za-z0-9_+#-]*[ \t\r]*\n")


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
