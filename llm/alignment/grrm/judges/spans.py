"""A judge without a model that marks errors: the words of a translation that are not those of the reference."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from grrm.gqm.groups import Group, Status, Verdict
from grrm.gqm.spans import ErrorSpan, Spans
from grrm.judges.dedup import Outcome, dedup_texts, expand_to_duplicates, ranking_of, spans_by_candidate
from grrm.judges.interface import Judge
from grrm.judges.spec import JudgeOptions, Process, judge

MAX_CELLS = 2**24  # of an alignment, 64 MiB
# Signs of punctuation, and characters of scripts without spaces between words, each a word by itself.
_SIGNS = r"!-/:-@\[-`{-~¡-¿‐-‧‰-⁞、-〃〈-】〔-〟！-／：-＠"
_CHARACTERS = r"\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(
    rf"\d+(?:[.,:]\d+)*|[{_CHARACTERS}]|[^\s{_SIGNS}{_CHARACTERS}]+(?:['’-][^\s{_SIGNS}{_CHARACTERS}]+)*|[{_SIGNS}]"
)
_SIGN = re.compile(rf"[{_SIGNS}]")


@judge("spans", help="word errors against the reference, marked", reference="needed", marks_errors=True)
class SpansOptions(JudgeOptions):
    """It has none."""

    def open(self, process: Process) -> Judge:
        return SpansJudge()


@dataclass
class SpansJudge:
    """Scores 10 max(0, 1 - WER), and marks the words of the translation that are wrong or added.

    WER is the Levenshtein distance in words over the words of the reference; signs, and characters of scripts without
    spaces, are words. An error in a number is critical, one in a sign or in upper and lower case minor, any other
    major. Neighbouring errors of one severity are one span. A missing word lowers the score and marks nothing.

    A task without a reference leaves its candidates MISSING_REFERENCE, an alignment of over MAX_CELLS TOO_LONG.
    """

    name: str = field(default="spans", init=False)

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group, order kept; each distinct translation is compared once."""
        return [self._judge_group(group) for group in groups]

    def _judge_group(self, group: Group) -> Verdict:
        distinct = dedup_texts(group)
        reference = group.task.reference
        if reference is None or not reference.strip():
            return expand_to_duplicates(group, distinct, [Status.MISSING_REFERENCE] * len(distinct.texts))
        marked = [marked_errors(text, reference) for text in distinct.texts]
        outcomes: list[Outcome] = [Status.TOO_LONG if result is None else result[0] for result in marked]
        verdict = expand_to_duplicates(group, distinct, outcomes, tiers=ranking_of(outcomes))
        spans = {
            text: None if result is None else result[1] for text, result in zip(distinct.texts, marked, strict=True)
        }
        return replace(verdict, spans=spans_by_candidate(group, spans))


def marked_errors(translation: str, reference: str) -> tuple[float, Spans] | None:
    """Score from 0 to 10 and error spans of a translation (see `SpansJudge`); None if the texts are too long."""
    ours, theirs = list(_WORD.finditer(translation)), [match[0] for match in _WORD.finditer(reference)]
    if (len(ours) + 1) * (len(theirs) + 1) > MAX_CELLS:
        return None
    partners, distance = aligned([match[0] for match in ours], theirs)
    errors = [
        ErrorSpan(match.start(), match.end(), _severity(match[0], partner))
        for match, partner in zip(ours, partners, strict=True)
        if match[0] != partner
    ]
    score = 10 * max(0.0, 1 - distance / max(len(theirs), 1))
    return score, _joined(errors, translation)


def aligned(ours: Sequence[str], theirs: Sequence[str]) -> tuple[list[str | None], int]:
    """The word of `theirs` that each of `ours` stands for, None for an added one; and the Levenshtein distance.

    Of alignments with the fewest errors it takes the one that, from the end, keeps and replaces words where it can.
    """
    codes: dict[str, int] = {}
    a, b = (np.array([codes.setdefault(word, len(codes)) for word in words], int) for words in (ours, theirs))
    costs = _costs(a, b)
    partners: list[str | None] = [None] * len(ours)
    i, j = len(ours), len(theirs)
    while i and j:
        if costs[i, j] == costs[i - 1, j - 1] + (a[i - 1] != b[j - 1]):
            i, j = i - 1, j - 1
            partners[i] = theirs[j]
        elif costs[i, j] == costs[i - 1, j] + 1:
            i -= 1
        else:
            j -= 1
    return partners, int(costs[-1, -1])


def _costs(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """The distance of the first i words to the first j, as a table [i, j]."""
    steps = np.arange(len(b) + 1, dtype=np.int32)
    costs = np.empty((len(a) + 1, len(b) + 1), dtype=np.int32)
    costs[0] = steps
    for i, word in enumerate(a, start=1):
        row = costs[i - 1] + 1
        row[1:] = np.minimum(row[1:], costs[i - 1, :-1] + (b != word))
        costs[i] = np.minimum.accumulate(row - steps) + steps  # words of `b` left out, any number of them
    return costs


def _severity(word: str, partner: str | None) -> str:
    if any(map(str.isdecimal, word + (partner or ""))):
        return "critical"
    is_case = partner is not None and word.casefold() == partner.casefold()
    is_sign = _SIGN.fullmatch(word) is not None and (partner is None or _SIGN.fullmatch(partner) is not None)
    return "minor" if is_case or is_sign else "major"


def _joined(errors: Sequence[ErrorSpan], text: str) -> Spans:
    """Spans with nothing but spaces between them, and of one severity, as one."""
    joined: list[ErrorSpan] = []
    for span in errors:
        last = joined[-1] if joined else None
        if last is not None and last.severity == span.severity and not text[last.end : span.start].strip():
            joined[-1] = replace(last, end=span.end)
        else:
            joined.append(span)
    return tuple(joined)
