"""The unit of work: a prompt's task, all of its sampled candidates, and the judge's verdict on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from grrm.gqm.spans import GroupSpans, Marked
from grrm.gqm.terms import Terms


class Status(str, Enum):
    """The reason for which a candidate does or does not carry a score; every candidate has exactly one."""

    SCORED = "scored"
    DUPLICATE = "duplicate"  # same text as an earlier candidate, carries that candidate's score
    UNPARSABLE_CANDIDATE = "unparsable_candidate"  # no translation could be extracted from the response
    UNSAFE_CANDIDATE = "unsafe_candidate"  # cannot be shown to the judge: it would deceive, however escaped
    UNSAFE_SOURCE = "unsafe_source"  # the source, or what answers are judged by, cannot be shown for the same reason
    WRONG_LANGUAGE = "wrong_language"  # a gate: not in the target language
    WRONG_LENGTH = "wrong_length"  # a gate: far too long or short for its source
    SOURCE_COPY = "source_copy"  # a gate: the source and not a translation of it
    REPETITION = "repetition"  # a gate: repeats itself
    MISSING_TERM = "missing_term"  # a gate: a term of the glossary is translated otherwise
    WRONG_PLACEHOLDERS = "wrong_placeholders"  # a gate: not the placeholders and tags of the source
    OVER_LIMIT = "over_limit"  # a gate: more characters or lines than there may be
    WRONG_FORMALITY = "wrong_formality"  # a gate: words of the other form of address
    SINGLE_CANDIDATE = "single_candidate"  # fewer than two distinct translations: nothing to compare
    TOO_LONG = "too_long"  # the judge's prompt, or the text itself, would exceed its limit
    TOO_MANY_CANDIDATES = "too_many_candidates"  # more distinct translations than identifiers
    MISSING_REFERENCE = "missing_reference"  # the judge needs a reference and the task has none
    UNSEEN_LANGUAGES = "unseen_languages"  # the judge, a reward model, never saw this language pair in training
    JUDGE_UNPARSABLE = "judge_unparsable"  # the judge's reply was rejected by the verdict grammar
    JUDGE_TIMEOUT = "judge_timeout"
    JUDGE_UNREACHABLE = "judge_unreachable"

    @property
    def is_scored(self) -> bool:
        """True when a candidate of this status carries a score."""
        return self is Status.SCORED or self is Status.DUPLICATE


class ContextSegment(NamedTuple):
    """A source segment before the one to translate, and its translation in the data, None where there is none."""

    source: str
    translation: str | None


@dataclass(frozen=True, slots=True)
class TranslationTask:
    """One source text to translate; languages are two-letter codes or display names.

    `data_source` names the data that the task is from, where a run mixes several. A question to answer is such a task
    too, without languages: its reference is what the answer is judged by. `terms` are the entries of a glossary that
    its translation has to follow, `marked` are translations of it with the errors that people marked.

    `context` has the segments before the source in its document, nearest last: none before the first, None where
    nobody looked for them.
    """

    source: str
    src_lang: str
    trg_lang: str
    reference: str | None = None
    data_source: str = ""
    context: tuple[ContextSegment, ...] | None = None
    terms: Terms = ()
    marked: Marked = ()

    @property
    def is_translation(self) -> bool:
        """False for a question to answer."""
        return bool(self.trg_lang)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One sampled response; `translation` is the extracted answer, None when extraction failed."""

    candidate_id: str
    response: str
    translation: str | None
    n_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """All samples of one prompt, in sampling order. Raises ValueError on a repeated candidate id."""

    group_id: str
    task: TranslationTask
    candidates: tuple[Candidate, ...]

    def __post_init__(self) -> None:
        ids = [candidate.candidate_id for candidate in self.candidates]
        if len(set(ids)) != len(ids):
            raise ValueError(f"group {self.group_id!r} repeats a candidate id: {ids}")


@dataclass(frozen=True, slots=True)
class PartVerdict:
    """The answer of one judge of a mixture; `statuses` and `scores` are aligned with the group's candidates.

    `scores` are the judge's own, 0 to 10, before `normalise`. `counts` is False where the group was scored without this
    judge, `fell_back` True where its fallback answered in its place; `attempts` and `rejections` are the verdict's.
    """

    name: str
    weight: float
    normalise: str
    statuses: tuple[Status, ...]
    scores: tuple[float | None, ...]
    analysis: str = ""
    counts: bool = True
    fell_back: bool = False
    attempts: int = 0
    rejections: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judge's answer for one group, aligned with `group.candidates`.

    `scores[i]` is a number from 0 to 10 exactly when `statuses[i].is_scored`, otherwise None:
    failure is not zero. `ranking` lists candidate ids in tiers, best first (None when the judge gives
    none); `analysis` is the judge's text.

    `attempts` counts generations (0 = the judge was not asked), `tokens` the tokens that were generated in them, and
    `rejections` says why each reply that could not be read was rejected (values of `RejectReason`).

    Where the group was judged in several orders of its candidates, `order_scores` has the scores of each, aligned like
    `scores`; a verdict mixed of several judges' has theirs in `parts`.

    A judge that marks errors gives `spans`, ranges of each candidate's translation, None for a candidate that it did
    not look at; one that marks none leaves () there.
    """

    statuses: tuple[Status, ...]
    scores: tuple[float | None, ...]
    ranking: tuple[tuple[str, ...], ...] | None = None
    analysis: str = ""
    attempts: int = 0
    tokens: int = 0
    order_scores: tuple[tuple[float | None, ...], ...] = ()
    rejections: tuple[str, ...] = ()
    parts: tuple[PartVerdict, ...] = ()
    spans: GroupSpans = ()

    def __post_init__(self) -> None:
        if self.spans and len(self.spans) != len(self.scores):
            raise ValueError(f"error spans of {len(self.spans)} candidates for {len(self.scores)} scores")
        if len(self.statuses) != len(self.scores):
            raise ValueError(f"{len(self.statuses)} statuses for {len(self.scores)} scores")
        for status, score in zip(self.statuses, self.scores, strict=True):
            if status.is_scored != (score is not None):
                raise ValueError(f"status {status.value!r} cannot carry score {score!r}")
            if score is not None and not 0.0 <= score <= 10.0:
                raise ValueError(f"score {score!r} is outside 0 to 10, to which every judge scales or clips its own")

    @classmethod
    def unscored(cls, n_candidates: int, status: Status) -> Verdict:
        """A verdict in which no candidate has a score, all for the same reason."""
        return cls((status,) * n_candidates, (None,) * n_candidates)


def unscored(groups: Sequence[Group], status: Status) -> list[Verdict]:
    """A verdict without scores for each group, all for the same reason."""
    return [Verdict.unscored(len(group.candidates), status) for group in groups]


Tiers = tuple[tuple[int, ...], ...]


def tiers_of(scores: Sequence[float]) -> Tiers:
    """Indexes grouped by equal score, best first, ascending inside a tier. No scores give no tiers."""
    by_score: dict[float, list[int]] = {}
    for index, score in enumerate(scores):
        by_score.setdefault(score, []).append(index)
    return tuple(tuple(by_score[score]) for score in sorted(by_score, reverse=True))


def ranking_line(scores_by_id: Mapping[str, float]) -> str:
    """The ranking that scores imply: `B > A = D > C`, ties in alphabetical order."""
    ids = sorted(scores_by_id)
    tiers = tiers_of([scores_by_id[candidate_id] for candidate_id in ids])
    return " > ".join(" = ".join(ids[index] for index in tier) for tier in tiers)


def ranking_to_scores(ranking: str) -> dict[str, int]:
    """Ordinal scores of a ranking line: the worst tier is 0, each better tier one more. Ids are not checked."""
    tiers = ranking.split(">")
    return {
        candidate_id.strip(): height for height, tier in enumerate(reversed(tiers)) for candidate_id in tier.split("=")
    }
