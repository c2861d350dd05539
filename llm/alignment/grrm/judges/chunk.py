"""Groups with more distinct candidates than the judge has identifiers: overlapping chunks around one anchor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from grrm.gqm.grammar import MAX_SCORE
from grrm.gqm.groups import Group, Status, Verdict
from grrm.gqm.languages import CANDIDATE_IDS
from grrm.judges.dedup import (
    AroundJudge,
    Outcome,
    TextVerdict,
    each_by_itself,
    expand,
    joined_verdict,
    ranking_of,
    subgroup,
    texts_of,
    verdict_by_text,
)

Chunk = tuple[int, ...]  # indexes of distinct translations, the anchor first


@dataclass
class ChunkedJudge(AroundJudge):
    """Lets `inner` judge groups of any size, at most `max_candidates` at a time; behind `DistinctJudge`.

    A larger group is split into the fewest chunks of even size that share one candidate, the anchor. The anchor is the
    translation of median length, because an empty or an overlong one would be a poor reference.

    With a_c the anchor's score in chunk c and m the mean of all a_c, every score s of chunk c becomes `align_score(s,
    a_c, m)`; the anchor itself scores m. A chunk that did not score the anchor cannot be aligned: its candidates get
    the anchor's status, or keep their own. The ranking follows from the aligned scores.

    All chunks of all groups go to `inner` in one call. Smaller groups are passed on as they are.
    """

    max_candidates: int = len(CANDIDATE_IDS)

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        plans = [self._chunks(group) for group in groups]
        parts = [[subgroup(group, chunk) for chunk in chunks] for group, chunks in zip(groups, plans, strict=True)]
        answers = iter(self.inner.judge([part for of_group in parts for part in of_group]))
        return [
            self._combine(group, chunks, [(part, next(answers)) for part in of_group])
            for group, chunks, of_group in zip(groups, plans, parts, strict=True)
        ]

    def _chunks(self, group: Group) -> list[Chunk]:
        """The chunks of the group; a single one if `inner` can judge it as a whole."""
        texts = texts_of(group)
        return chunks_of(texts, self.max_candidates) if len(texts) > self.max_candidates else [tuple(range(len(texts)))]

    def _combine(self, group: Group, chunks: Sequence[Chunk], parts: Sequence[tuple[Group, Verdict]]) -> Verdict:
        if len(parts) == 1:
            return parts[0][1]
        self.metrics.add("chunked_groups")
        verdicts = [verdict_by_text(*part, chunk) for part, chunk in zip(parts, chunks, strict=True)]
        outcomes = aligned_outcomes(verdicts, anchor=chunks[0][0])
        tiers = ranking_of([outcomes[k] for k in range(len(outcomes))])
        return expand(group, each_by_itself(group), joined_verdict(outcomes, tiers, parts))


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
    """The outcomes of all chunks on the scale on which the anchor has its mean score (see `ChunkedJudge`)."""
    anchors = [chunk.scores[anchor] for chunk in chunks if anchor in chunk.scores]
    level = math.fsum(anchors) / len(anchors) if anchors else 0.0
    outcomes: dict[int, Outcome] = {}
    for chunk in chunks:
        own = chunk.outcomes[anchor]
        for k, outcome in chunk.outcomes.items():
            if not isinstance(outcome, Status):
                outcomes[k] = own if isinstance(own, Status) else align_score(outcome, own, level)
            else:
                outcomes.setdefault(k, outcome)  # the anchor may have its score from another chunk
    return outcomes


def align_score(score: float, anchor_in_chunk: float, anchor: float) -> float:
    """Map `score` (0 to 10) of a chunk to the scale on which its anchor has the score `anchor`.

    With s the score, a the anchor's score in the chunk and m its common score:

        s < a: m s / a;  s = a: m;  s > a: 10 - (10 - m) (10 - s) / (10 - a).

    This piecewise linear map through (0, 0), (a, m) and (10, 10) stays within 0 to 10 and keeps the order inside the
    chunk, which adding m - a and clipping would not. If m were 0 or 10 and a not, one side would collapse onto the
    anchor; as the mean of several a, m is 0 or 10 only when they all are.
    """
    if score == anchor_in_chunk:
        return anchor
    if anchor_in_chunk == anchor:
        return score
    if score < anchor_in_chunk:
        return anchor * score / anchor_in_chunk
    return MAX_SCORE - (MAX_SCORE - anchor) * (MAX_SCORE - score) / (MAX_SCORE - anchor_in_chunk)
