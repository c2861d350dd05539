"""The grammar of a judge's reply, and the reasons for rejecting one.

A group reply ends with a line of scores `B: 9, A: 7, D: 7`, after a ranking line `B > A = D` under a header of its
own; which of the two must be there is up to the prompt type.

- `exact` accepts what released judges write.
- `tolerant` also accepts bold marks, backticks, decimals, full-width punctuation and digits, a label before the line,
  `/10` after a score and a full stop at the end.
- `compat` parses as the original trainer did and rejects only scores outside 0 to 10, which no verdict can carry;
  `grrm.gqm.compat` has the bare parsers.

`exact` and `tolerant` reject what would corrupt training: a score outside 0 to 10, an identifier that is unknown,
repeated or missing, a ranking that contradicts the scores. What a model thinks, up to `</think>`, is no part of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from grrm.gqm import compat
from grrm.gqm.groups import Tiers, tiers_of
from grrm.gqm.languages import CANDIDATE_IDS
from grrm.gqm.prompts import check_prompt_type

Mode = Literal["exact", "tolerant", "compat"]
MAX_SCORE = 10.0


class RejectReason(str, Enum):
    """The reason for which a judge's reply gives no verdict."""

    EMPTY = "empty"
    TRUNCATED = "truncated"  # it reached the length limit, so that `10` may have become `1`
    MALFORMED_SCORES = "malformed_scores"  # the last line is not a list of scores
    MALFORMED_RANKING = "malformed_ranking"  # the last line is not a ranking
    MALFORMED_TOTAL = "malformed_total"  # no number where a rubric judge's total must be
    MALFORMED_ERRORS = "malformed_errors"  # no list of errors, and not that there are none
    MALFORMED_ANSWER = "malformed_answer"  # a verifier said neither true nor false, or both
    OUT_OF_RANGE = "out_of_range"
    UNKNOWN_ID = "unknown_id"
    DUPLICATE_ID = "duplicate_id"
    MISSING_ID = "missing_id"
    CONTRADICTION = "ranking_contradicts_scores"


@dataclass(frozen=True, slots=True)
class ParsedVerdict:
    """An accepted reply. `scores[i]` belongs to candidate i; `ranking` holds tiers of candidate indexes, best first.

    `scores` is None for prompt type `ranking`; `ranking` is None where the reply has no ranking line.
    """

    scores: tuple[float, ...] | None
    ranking: Tiers | None
    analysis: str


@dataclass(frozen=True, slots=True)
class Rejection:
    """A rejected reply: the reason, and what stood in the reply."""

    reason: RejectReason
    detail: str


def parse_verdict(
    text: str, n_candidates: int, prompt_type: str = "ranking_score", mode: Mode = "exact"
) -> ParsedVerdict | Rejection:
    """The verdict in a group judge's reply on candidates A, B, … (`n_candidates` of them, 1 to 26).

    Scores alone are enough for `ranking_score`, and a text in the place of the ranking that is none is taken for
    analysis; a ranking there of other candidates than the scored ones contradicts them. Raises UserError for an
    unknown prompt type, ValueError for an unknown mode or a number of candidates that has no identifiers; never raises
    because of `text`.
    """
    check_prompt_type(prompt_type)
    if not 1 <= n_candidates <= len(CANDIDATE_IDS):
        raise ValueError(f"{n_candidates} candidates cannot be named A to Z")
    if _check_mode(mode) == "compat":
        return _parse_compat(text, n_candidates, prompt_type)
    lines = _lines(text, mode)
    if not lines:
        return Rejection(RejectReason.EMPTY, "")
    ids = CANDIDATE_IDS[:n_candidates]
    if prompt_type == "ranking":
        tiers = _parse_ranking(lines[-1], ids, mode)
        return tiers if isinstance(tiers, Rejection) else ParsedVerdict(None, tiers, _analysis(lines[:-1]))
    scores = _parse_scores(lines[-1], ids, mode)
    if isinstance(scores, Rejection):
        return scores
    if prompt_type == "score":
        return ParsedVerdict(scores, None, "\n".join(lines[:-1]).strip())
    return _with_ranking(scores, lines[:-1], ids)


def reads_as_positions(line: str) -> bool:
    """True if `line` is scores to mode `compat` under prompt type "score": any numbers, such as `10:30, 11:45`."""
    return "," in line and compat.group_extract_scores(line, "score", line.count(",") + 1) is not None


def parse_sqm(text: str, mode: Mode = "exact") -> float | Rejection:
    """The score on the last line of a single-translation judge's reply.

    `exact` reads whatever `int` reads, from 0 to 10; `tolerant` what it accepts in a group reply.
    Raises ValueError for an unknown mode.
    """
    if _check_mode(mode) == "compat":
        score = compat.sqm_extract_score(text)
        return _in_range(None if score is None else float(score), compat.last_line(text))
    lines = _lines(text, mode)
    if not lines:
        return Rejection(RejectReason.EMPTY, "")
    if mode == "tolerant":
        line = _plain(lines[-1])
        return _in_range(_number(line, mode), line)
    try:
        return _in_range(float(int(lines[-1])), lines[-1])
    except (ValueError, OverflowError):
        return _in_range(None, lines[-1])


def _check_mode(mode: str) -> str:
    if mode not in ("exact", "tolerant", "compat"):
        raise ValueError(f"mode {mode!r} is not exact, tolerant or compat")
    return mode


def behind_thoughts(reply: str) -> str:
    """The part of a reply that follows a model's thoughts; all of one without any, nothing where they do not end."""
    behind = reply.rpartition("</think>")[2]
    return "" if behind.lstrip().startswith("<think>") else behind


def _lines(text: str, mode: str) -> list[str]:
    lines = behind_thoughts(text).strip().split("\n")
    while lines and not (lines[-1].strip() if mode == "exact" else _has_text(lines[-1])):
        lines.pop()
    return lines


def _has_text(line: str) -> bool:
    """False for a line of nothing but marks: a fence, a rule."""
    return line.strip("*_`~- \t\r").strip() != ""


# Full-width forms are what a judge writing Chinese or Japanese produces.
_FULL_WIDTH = {code + 0xFEE0: code for code in range(0x21, 0x7F)} | {ord("。"): ".", ord("、"): ",", 0x3000: " "}
# Whole runs of marks, but not inside a number: `1_0` is not 10.
_MARKS = re.compile(r"(?<![*_`])(?:(?<![0-9])[*_`]+|[*_`]+(?![0-9*_`]))")
_LABEL = re.compile(r"^\W*(?:final\s+)?(?:scores?|rankings?)\s*:", re.IGNORECASE)


def _plain(line: str) -> str:
    """A line without the decorations that tolerant mode looks through."""
    bare = _MARKS.sub("", line.translate(_FULL_WIDTH)).replace(";", ",")
    return _LABEL.sub("", bare).strip().rstrip(".,").strip()


_INTEGER = re.compile(r"-?[0-9]+")
_DECIMAL = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)\.?(?:\s*/\s*10)?")


def _number(text: str, mode: str) -> float | None:
    # float, not int: a judge that loops on a digit must not run into int's limit on digits.
    if mode == "exact":
        return float(text) if _INTEGER.fullmatch(text) else None
    match = _DECIMAL.fullmatch(text)
    return float(match.group(1)) if match else None


def _in_range(score: float | None, line: str) -> float | Rejection:
    if score is None:
        return Rejection(RejectReason.MALFORMED_SCORES, line)
    return abs(score) if 0.0 <= score <= MAX_SCORE else Rejection(RejectReason.OUT_OF_RANGE, line)  # abs: -0 is 0


def _parse_scores(line: str, ids: tuple[str, ...], mode: str) -> tuple[float, ...] | Rejection:
    """Scores in candidate order from `B: 9, A: 7`; the order of the items is free."""
    line = line if mode == "exact" else _plain(line)
    by_id: dict[str, float] = {}
    for item in line.split(","):
        name, colon, value = (part.strip() for part in item.partition(":"))
        score = _in_range(_number(value, mode) if name and colon else None, line)
        if isinstance(score, Rejection):
            return score
        if name in by_id:
            return Rejection(RejectReason.DUPLICATE_ID, name)
        by_id[name] = score
    rejection = _check_ids(list(by_id), ids)
    return rejection or tuple(by_id[candidate_id] for candidate_id in ids)


def _parse_ranking(line: str, ids: tuple[str, ...], mode: str) -> Tiers | Rejection:
    """Tiers of candidate indexes, ascending inside a tier, from `B > A = D`."""
    line = line if mode == "exact" else _plain(line)
    tiers = [[name.strip() for name in tier.split("=")] for tier in line.split(">")]
    names = [name for tier in tiers for name in tier]
    if not all(re.fullmatch("[A-Z]", name) for name in names):
        return Rejection(RejectReason.MALFORMED_RANKING, line)
    rejection = _check_ids(names, ids)
    return rejection or tuple(tuple(sorted(ids.index(name) for name in tier)) for tier in tiers)


def _check_ids(names: list[str], ids: tuple[str, ...]) -> Rejection | None:
    for name in names:
        if name not in ids:
            return Rejection(RejectReason.UNKNOWN_ID, name)
        if names.count(name) > 1:
            return Rejection(RejectReason.DUPLICATE_ID, name)
    missing = [candidate_id for candidate_id in ids if candidate_id not in names]
    return Rejection(RejectReason.MISSING_ID, ", ".join(missing)) if missing else None


def _with_ranking(scores: tuple[float, ...], before: list[str], ids: tuple[str, ...]) -> ParsedVerdict | Rejection:
    """Look for the ranking in the two text lines before the scores: one of them is usually the scores' header.

    Decorations are looked through in every mode, or a bold ranking could contradict the scores unnoticed.
    """
    filled = [index for index, line in enumerate(before) if _has_text(line)]
    for index in reversed(filled[-2:]):
        tiers = _parse_ranking(before[index], ids, "tolerant")
        if isinstance(tiers, Rejection) and not _ranks_others(tiers, before[index]):
            continue
        if tiers != tiers_of(scores):
            return Rejection(RejectReason.CONTRADICTION, before[index].strip())
        return ParsedVerdict(scores, tiers, _analysis(before[:index]))
    return ParsedVerdict(scores, None, _analysis(before))


def _ranks_others(rejection: Rejection, line: str) -> bool:
    """True for a ranking with unknown, repeated or missing ids, False for text that is no ranking (or a lone `A`)."""
    return rejection.reason is not RejectReason.MALFORMED_RANKING and re.search("[>=]", _plain(line)) is not None


_HEADER = re.compile(r"\W*(?:final\s+)?(?:scores?|rankings?)\W*", re.IGNORECASE)


def _analysis(lines: list[str]) -> str:
    """The text before the verdict, without the header of the verdict."""
    text = "\n".join(lines).strip()
    before, _, last = text.rpartition("\n")
    return before.strip() if _HEADER.fullmatch(last) else text


def _parse_compat(text: str, n_candidates: int, prompt_type: str) -> ParsedVerdict | Rejection:
    scores = compat.group_extract_scores(text, prompt_type, n_candidates)
    line = compat.last_line(text)
    if prompt_type == "ranking":
        if scores is None:
            return Rejection(RejectReason.MALFORMED_RANKING, line)
        return ParsedVerdict(None, tiers_of(scores), text.strip())
    if scores is None:
        return Rejection(RejectReason.MALFORMED_SCORES, line)
    if not all(0 <= score <= MAX_SCORE for score in scores):
        return Rejection(RejectReason.OUT_OF_RANGE, line)
    return ParsedVerdict(tuple(map(float, scores)), None, text.strip())
