"""The rubric judge's protocol (RRM): a question, its scoring criteria and an answer in, a total of 10 points out.

The prompt is what the released rubric models were trained on, byte for byte. Their replies end in a line like
`**Total Score: [8/10]**`.
"""

from __future__ import annotations

import math
import re
import unicodedata

from grrm.gqm.fences import skeleton
from grrm.gqm.grammar import MAX_SCORE, Mode, Rejection, RejectReason, behind_thoughts
from grrm.gqm.marks import cap_marks

_MARK = "Total Score"
_NOISE = re.compile(r"points?|[:\[\]*|']")
_NOISE_COMPAT = re.compile(r"points?|[:\[*|']")
_TOLERANT = re.compile(
    r"total\s+score[\s:=*_`~|'\"\[({$\\]*(?:(?:is|boxed)[\s*_`{]*)?"
    r"(?:\(?[0-9.]+(?:\s*[-+−×*]\s*[0-9.]+)+\)?\s*=\s*)?"  # a sum of points, before what it comes to
    r"(?P<total>[-+]?[0-9]+(?:\.[0-9]+)?)(?![\w%⁄]|[.,][0-9]|[^\S\n]*(?:[-+−‐–—~〜×=]|to\b|or\b)[^\S\n]*[0-9])"
    r"(?:(?:[\s*_`~|'\"\[\](){}$]|points?)*(?:/|(?:out\s+)?of)\s*(?P<whole>[0-9]+(?:\.[0-9]+)?))?",
    re.IGNORECASE,
)
# Lines that only the prompt or the judge may write: an answer with one could bring criteria of its own.
_PROTOCOL_LINE = re.compile(
    r"^[^\w\n]*(?:question\W*$|(?:scoring[^\S\n]+criteria|student's[^\S\n]+answer)(?:[^\w\n]*:|\W*$)"
    r"|total[^\S\n]+score\b)",
    re.IGNORECASE | re.MULTILINE,
)


def rubric_prompt(question: str, criteria: str, answer: str) -> str:
    """The user turn that asks for a total from 0 to 10; texts go in once and as they are."""
    return (
        "You are a grading teacher. Based on the following information, please evaluate the student's submitted "
        "answer. The total score is out of 10 points. Carefully read the question, the scoring criteria, and the "
        "submitted answer. Then give a fair and reasonable score according to the grading criteria.\n"
        f"Here is the information:\n\n\nQuestion:\n{question}\n\n\n\nScoring Criteria:\n{criteria}\n\n\n\n"
        f"Student's Answer:\n{answer}\n\n"
    )


def rubric_seams() -> tuple[str, str, str, str]:
    """The fixed text of every prompt before the question, before the criteria, before the answer, and behind it."""
    begin, before_criteria, before_answer, end = rubric_prompt("\0", "\0", "\0").split("\0")
    return begin, before_criteria, before_answer, end


def imitates_rubric(text: str) -> bool:
    """True if a line of the text reads as one that only the prompt or the judge may write."""
    readings = (skeleton(text, {}), skeleton(text))
    return any(_PROTOCOL_LINE.search(reading.replace("’", "'")) is not None for reading in readings)


def parse_total(text: str, mode: Mode = "exact") -> float | Rejection:
    """The total in a rubric judge's reply, 0 to 10; more than 10 is 10.

    `exact` reads the number after the last `Total Score`, or the whole text without one: points, colons, brackets,
    bars, asterisks and apostrophes are ignored, as is what follows a slash. `tolerant` also reads a mark in another
    case, full-width forms, text after the number, and what a sum of points comes to.

    Either passes over thoughts up to `</think>`, and refuses a total that is negative, no finite number or not of 10.
    `compat` reads as the original, which stumbles over a closing bracket, and refuses only what no verdict can carry.
    Never raises because of `text`.
    """
    if mode != "compat":
        text = behind_thoughts(text)
    if not text.strip():
        return Rejection(RejectReason.EMPTY, "")
    total, scale = _read_strictly(text, _NOISE_COMPAT if mode == "compat" else _NOISE)
    if total is None and mode == "tolerant":
        total, scale = _read_tolerantly(text)
    detail = text.strip()[-80:]
    if total is None:
        return Rejection(RejectReason.MALFORMED_TOTAL, detail)
    if math.isnan(total) or total < 0 or ((math.isinf(total) or scale != MAX_SCORE) and mode != "compat"):
        return Rejection(RejectReason.OUT_OF_RANGE, detail)
    return min(MAX_SCORE, total)


def _read_strictly(text: str, noise: re.Pattern[str]) -> tuple[float | None, float]:
    """The total behind the last mark and what it is of: the number after the slash, 10 where there is none."""
    points, _, scale = noise.sub("", text.rpartition(_MARK)[2]).partition("/")
    highest = re.match(r"\s*([0-9]+(?:\.[0-9]+)?)", scale)
    try:
        return float(points.strip()), float(highest[1]) if highest else MAX_SCORE
    except ValueError:
        return None, MAX_SCORE


def _read_tolerantly(text: str) -> tuple[float | None, float]:
    """The last total in the text and what it is of."""
    matches = list(_TOLERANT.finditer(unicodedata.normalize("NFKC", cap_marks(text))))
    if not matches:
        return None, MAX_SCORE
    return float(matches[-1]["total"]), float(matches[-1]["whole"] or MAX_SCORE)
