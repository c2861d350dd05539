"""The original tools' extractors and helpers, reproduced with their quirks for comparison.

None always means what it meant there: the text could not be parsed.
"""

from __future__ import annotations

import re

from grrm.gqm.compat import last_line


def find_ints_in_string(text: str, expected: int | None = None) -> list[int] | None:
    """All runs of digits, signs and decimal points ignored; None if there are not `expected` of them."""
    found = [int(digits) for digits in re.findall(r"\d+", text)]
    return found if expected is None or len(found) == expected else None


def get_cand_num(ranking: str) -> int:
    """Candidates in a ranking line, counted by its length. AssertionError if it is not spaced like `A > B = C`."""
    n, rest = divmod(len(ranking.strip()) + 3, 4)
    if rest:
        raise AssertionError(f"{ranking!r} is not a ranking of one-letter identifiers joined by ' > ' and ' = '")
    return n


def _stripped_or_none(text: str) -> str | None:
    return text.strip() or None


def extract_answer(text: str, prompt_type: str) -> str | None:
    """The translation tool's extractor. Quirks: an info string stays, and an empty answer may be "" or None."""
    text = text.strip()
    if prompt_type == "Tower.lastl":
        return last_line(text)
    if prompt_type == "codeblock-think":
        _, opening, content = text.removesuffix("```").rpartition("```")
        return _stripped_or_none(content) if opening and text.endswith("```") else None
    if prompt_type == "SSR":
        _, opening, rest = text.partition("<answer>")
        content, closing, _ = rest.partition("</answer>")
        return _stripped_or_none(content) if opening and closing else None
    if prompt_type == "seedx-cot":
        return text.partition("[COT]")[0].strip() if text else None
    return text


def extract(text: str, extractor_type: str) -> str | None:
    """The trainer's extractor. Quirks: an info string stays, and `none` gives "" for an empty response.

    Raises ValueError for an extractor type that does not exist.
    """
    if extractor_type == "line":
        return last_line(text) or None
    if extractor_type == "codeblock":
        return extract_answer(text, "codeblock-think") if text.count("```") == 2 else None
    if extractor_type == "oneline":
        return None if "\n" in text.strip() else _stripped_or_none(text)
    if extractor_type == "none":
        return text.strip()
    raise ValueError(f"extractor_type: {extractor_type}")
