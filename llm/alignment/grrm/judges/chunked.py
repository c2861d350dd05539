"""Groups with more distinct candidates than the judge has identifiers: overlapping chunks around one anchor."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from grrm.gqm.fences import is_safe_candidate
from grrm.gqm.groups import Group, Status, Verdict
from grrm.gqm.languages import CANDIDATE_IDS
from grrm.judges.alignment import align_score
from grrm.judges.distinct import DistinctCandidates, find_shown, spread_verdict
from grrm.judges.interface import Judge
from grrm.judges.metrics import JudgeMetrics
from grrm.judges.outcomes import Outcome, ranking_of
from grrm.judges.shown import TextVerdict, labelled, read_shown, show

Chunk = tuple[int, ...]  # indexes of distinct translations, the anchor first


@dataclass
class ChunkedJudge:
    """Lets `inner` judge groups of any size, at most `max_candidates` distinct translations at a time.

    A larger group is cut into the fewest chunks that all contain one anchor, as even as they can be. With a_c the
    anchor's score in chunk c and m the mean of all a_c, every score of chunk c is carried over by
    `align_score(s, a_c, m)`: monotone, within 0 to 10, and nothing changes where a_c = m. The anchor itself scores m.
    It is the translation of median length, so that neither an empty nor an endless candidate sets the scale. A chunk
    in which the anchor went unscored cannot be aligned: its candidates keep their statuses or take the anchor's. The
    others keep their scores. The ranking follows from the aligned scores. All chunks of all groups go to `inner` in
    one call. Smaller groups are passed on as they are. Raises ValueError unless `max_candidates` is 2 to 26.
    """

    inner: Judge
    max_candidates: int = len(CANDIDATE_IDS)
    is_safe: Callable[[str], bool] = is_safe_candidate
    metrics: JudgeMetrics = field(default_factory=JudgeMetrics)
    room_for_copies: int = 0  # see `find_shown`; the same as that of `inner`
    name: str = field(init=False)

    def __post_init__(self) -> None:
        if not 2 <= self.max_candidates <= len(CANDIDATE_IDS):
            raise ValueError(f"max_candidates must be 2 to {len(CANDIDATE_IDS)}, got {self.max_candidates}")
        self.name = self.inner.name

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group, order kept."""
        plans = [self._plan(group) for group in groups]
        shown = [part for group, plan in zip(groups, plans, strict=True) for part in _parts(group, plan)]
        answers = iter(self.inner.judge(shown))
        verdicts = []
        for group, plan in zip(groups, plans, strict=True):
            parts = [(part, next(answers)) for part in _parts(group, plan)]
            verdicts.append(parts[0][1] if plan is None else self._combine(group, plan, parts))
        return verdicts

    def _plan(self, group: Group) -> tuple[DistinctCandidates, list[Chunk]] | None:
        """How the group is cut, None when `inner` can judge it whole."""
        distinct = find_shown(group, self.is_safe, self.room_for_copies)
        if len(distinct.texts) <= self.max_candidates:
            return None
        return distinct, chunks_of(distinct.texts, self.max_candidates)

    def _combine(
        self, group: Group, plan: tuple[DistinctCandidates, list[Chunk]], parts: Sequence[tuple[Group, Verdict]]
    ) -> Verdict:
        distinct, chunks = plan
        self.metrics.add("chunked_groups")
        read = [read_shown(part, verdict, chunk) for (part, verdict), chunk in zip(parts, chunks, strict=True)]
        outcomes = aligned_outcomes(read, anchor=chunks[0][0])
        ordered = [outcomes[k] for k in range(len(distinct.texts))]
        return spread_verdict(
            group,
            distinct,
            ordered,
            tiers=ranking_of(ordered),
            analysis="\n\n".join(filter(None, (labelled(part, verdict.analysis) for part, verdict in parts))),
            attempts=sum(verdict.attempts for _, verdict in parts),
        )


def chunks_of(texts: Sequence[str], max_candidates: int) -> list[Chunk]:
    """The fewest chunks of at most `max_candidates` (at least 2) indexes that share an anchor, sizes even within one.

    The anchor, the first of every chunk, has median length in characters; the others come in the order given. Needs
    at least two texts.
    """
    anchor = sorted(range(len(texts)), key=lambda k: len(texts[k]))[len(texts) // 2]
    others = [k for k in range(len(texts)) if k != anchor]
    n_chunks = math.ceil(len(others) / (max_candidates - 1))
    bounds = [round(c * len(others) / n_chunks) for c in range(n_chunks + 1)]
    return [(anchor, *others[start:end]) for start, end in pairwise(bounds)]


def aligned_outcomes(chunks: Sequence[TextVerdict], anchor: int) -> dict[int, Outcome]:
    """The outcomes of all chunks on one scale, as `ChunkedJudge` says."""
    anchors = [chunk.scores[anchor] for chunk in chunks if anchor in chunk.scores]
    level = math.fsum(anchors) / len(anchors) if anchors else 0.0
    outcomes: dict[int, Outcome] = {}
    for chunk in chunks:
        here = chunk.outcomes[anchor]
        for k, outcome in chunk.outcomes.items():
            if not isinstance(outcome, Status):
                outcomes[k] = here if isinstance(here, Status) else align_score(outcome, here, level)
            else:
                outcomes.setdefault(k, outcome)  # the anchor may have its score from another chunk
    return outcomes


def _parts(group: Group, plan: tuple[DistinctCandidates, list[Chunk]] | None) -> list[Group]:
    return [group] if plan is None else [show(group, plan[0], chunk) for chunk in plan[1]]
