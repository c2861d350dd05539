"""Deduplication: equal translations of a group are judged once; helpers for judges that ask others about groups."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from grrm.gqm.fences import FENCED
from grrm.gqm.groups import Group, Status, Tiers, TranslationTask, Verdict, tiers_of
from grrm.gqm.spans import GroupSpans, Spans
from grrm.judges.interface import CountingJudge
from grrm.judges.metrics import JudgeMetrics

Outcome = float | Status  # a score, or the status that explains its absence


@dataclass(frozen=True, slots=True)
class DistinctCandidates:
    """The translations of a group that can be judged, in order of first occurrence.

    `members[k]` are the positions in `group.candidates` that share `texts[k]`; `excluded` maps every other position to
    the status that keeps it from being judged. From `dedup_candidates` a text may occur several times, with one member
    each.
    """

    texts: tuple[str, ...]
    members: tuple[tuple[int, ...], ...]
    excluded: dict[int, Status]


@dataclass(frozen=True, slots=True)
class TextVerdict:
    """A verdict by index into `DistinctCandidates.texts`: `outcomes[k]` is text k's score or the status without one.

    `tiers` ranks such k, best first; None where the judge gave no ranking.
    """

    outcomes: dict[int, Outcome]
    tiers: Tiers | None
    analysis: str
    attempts: int
    tokens: int
    rejections: tuple[str, ...]

    @property
    def scores(self) -> dict[int, float]:
        """The scores alone."""
        return {k: outcome for k, outcome in self.outcomes.items() if not isinstance(outcome, Status)}


def dedup_texts(group: Group, is_safe: Callable[[str], bool] | None = None) -> DistinctCandidates:
    """The group's distinct translations; candidates without a translation, or with an unsafe one, are excluded."""
    members: dict[str, list[int]] = {}
    excluded: dict[int, Status] = {}
    for position, candidate in enumerate(group.candidates):
        if candidate.translation is None:
            excluded[position] = Status.UNPARSABLE_CANDIDATE
        elif is_safe is not None and not is_safe(candidate.translation):
            excluded[position] = Status.UNSAFE_CANDIDATE
        else:
            members.setdefault(candidate.translation, []).append(position)
    return DistinctCandidates(tuple(members), tuple(tuple(positions) for positions in members.values()), excluded)


def spans_by_candidate(group: Group, of_text: Mapping[str, Spans | None]) -> GroupSpans:
    """The error spans of each candidate from those of its text; None for a candidate whose text was not looked at."""
    return tuple(of_text.get(candidate.translation or "") for candidate in group.candidates)


def dedup_candidates(
    group: Group, is_safe: Callable[[str], bool] | None = None, copies_limit: int = 0
) -> DistinctCandidates:
    """`dedup_texts`, unless the judge has room for every copy: then each candidate is its own entry, in order.

    Copies are shown when the group has at least two distinct translations and at most `copies_limit` candidates.
    How often a policy samples a translation is evidence that deduplication hides from the judge.
    """
    distinct = dedup_texts(group, is_safe)
    positions = sorted(position for members in distinct.members for position in members)
    if len(positions) > copies_limit or len(distinct.texts) < 2:
        return distinct
    texts = {
        position: text for text, of_text in zip(distinct.texts, distinct.members, strict=True) for position in of_text
    }
    return DistinctCandidates(
        tuple(texts[position] for position in positions),
        tuple((position,) for position in positions),
        distinct.excluded,
    )


def without_longest(distinct: DistinctCandidates, count_tokens: Callable[[str], int]) -> DistinctCandidates:
    """The same without the translation of most tokens, whose copies become TOO_LONG. Needs at least one translation.

    Of equally long texts the one that sorts last is dropped, so that the choice does not depend on the order of the
    candidates.
    """
    sizes = [(count_tokens(text), text) for text in distinct.texts]
    longest = sizes.index(max(sizes))
    excluded = distinct.excluded | dict.fromkeys(distinct.members[longest], Status.TOO_LONG)
    return DistinctCandidates(
        distinct.texts[:longest] + distinct.texts[longest + 1 :],
        distinct.members[:longest] + distinct.members[longest + 1 :],
        excluded,
    )


@dataclass
class AroundJudge:
    """A judge that asks another one, and has its name and counters."""

    inner: CountingJudge
    name: str = field(init=False)
    metrics: JudgeMetrics = field(init=False)

    def __post_init__(self) -> None:
        self.name, self.metrics = self.inner.name, self.inner.metrics


@dataclass
class DistinctJudge(AroundJudge):
    """Show `inner` the distinct translations of a group that are safe, in order of first occurrence.

    Copies are shown too where all fit into `copies_limit` (see `dedup_candidates`). Judges behind this one see each
    candidate with a safe translation, and need no guard or deduplication of their own.
    """

    is_safe: Callable[[str], bool] = FENCED.is_safe
    copies_limit: int = 0

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        plans = [dedup_candidates(group, self.is_safe, self.copies_limit) for group in groups]
        parts = [
            subgroup(group, [members[0] for members in plan.members]) for group, plan in zip(groups, plans, strict=True)
        ]
        return list(map(_restored, groups, plans, parts, self.inner.judge(parts)))


def _restored(group: Group, plan: DistinctCandidates, part: Group, verdict: Verdict) -> Verdict:
    """The verdict on the whole group from that on `part`, its distinct translations."""
    by_text = verdict_by_text(part, verdict, range(len(part.candidates)))
    orders = []
    for scores in verdict.order_scores:
        score_of = dict(zip(plan.members, scores, strict=True))
        by_position = {position: score for members, score in score_of.items() for position in members}
        orders.append(tuple(by_position.get(position) for position in range(len(group.candidates))))
    return replace(expand(group, plan, by_text), order_scores=tuple(orders))


def subgroup(group: Group, order: Sequence[int]) -> Group:
    """The group reduced to the candidates at the positions `order`."""
    return Group(group.group_id, group.task, tuple(group.candidates[k] for k in order))


def texts_of(group: Group) -> list[str]:
    """The translations of a group behind `DistinctJudge`."""
    return [candidate.translation or "" for candidate in group.candidates]


def each_by_itself(group: Group) -> DistinctCandidates:
    """All candidates of a group behind `DistinctJudge`, copies too."""
    return DistinctCandidates(tuple(texts_of(group)), tuple((k,) for k in range(len(group.candidates))), {})


def verdict_by_text(part: Group, verdict: Verdict, order: Sequence[int]) -> TextVerdict:
    """The verdict on `part`, which is `subgroup(group, order)`, by position in `group`."""
    by_id = {candidate.candidate_id: k for candidate, k in zip(part.candidates, order, strict=True)}
    outcomes: dict[int, Outcome] = {
        k: status if score is None else score
        for k, status, score in zip(order, verdict.statuses, verdict.scores, strict=True)
    }
    tiers = None if verdict.ranking is None else tuple(tuple(by_id[name] for name in tier) for tier in verdict.ranking)
    return TextVerdict(outcomes, tiers, verdict.analysis, verdict.attempts, verdict.tokens, verdict.rejections)


def joined_verdict(
    outcomes: dict[int, Outcome], tiers: Tiers | None, parts: Sequence[tuple[Group, Verdict]]
) -> TextVerdict:
    """A verdict with these outcomes that cost, and says, what the verdicts on all `parts` of a group do."""
    verdicts = [verdict for _, verdict in parts]
    return TextVerdict(
        outcomes,
        tiers,
        join_analyses(parts),
        sum(verdict.attempts for verdict in verdicts),
        sum(verdict.tokens for verdict in verdicts),
        tuple(reason for verdict in verdicts for reason in verdict.rejections),
    )


def join_analyses(parts: Sequence[tuple[Group, Verdict]]) -> str:
    """The analyses of several verdicts, each under a line that names the candidates in the order they were shown."""
    labelled = []
    for part, verdict in parts:
        if verdict.analysis:
            ids = ", ".join(candidate.candidate_id for candidate in part.candidates)
            labelled.append(f"[candidates shown: {ids}]\n{verdict.analysis}")
    return "\n\n".join(labelled)


def ranking_of(outcomes: Sequence[Outcome]) -> Tiers | None:
    """The tiers that the scores among the outcomes imply, as indexes, best first; None without any score."""
    scored = [k for k, outcome in enumerate(outcomes) if not isinstance(outcome, Status)]
    tiers = tiers_of([float(outcomes[k]) for k in scored])
    return tuple(tuple(scored[i] for i in tier) for tier in tiers) or None


def expand_to_duplicates(
    group: Group,
    distinct: DistinctCandidates,
    outcomes: Sequence[Outcome],
    *,
    tiers: Sequence[Sequence[int]] | None = None,
    analysis: str = "",
    attempts: int = 0,
    tokens: int = 0,
    rejections: tuple[str, ...] = (),
) -> Verdict:
    """The verdict on the whole group from one outcome per text of `distinct`.

    Later copies of a scored translation become DUPLICATE with the same score. Copies that were judged one by one all
    get the mean of their scores. `tiers` ranks indexes into `distinct.texts`, best first; copies share their tier, and
    where means were taken the means decide the ranking.
    """
    if len(set(distinct.texts)) < len(distinct.texts):
        distinct, outcomes = _merge_copies(distinct, outcomes)
        tiers = None if tiers is None else ranking_of(outcomes)
    statuses = [distinct.excluded.get(position, Status.SCORED) for position in range(len(group.candidates))]
    scores: list[float | None] = [None] * len(group.candidates)
    for positions, outcome in zip(distinct.members, outcomes, strict=True):
        for position in positions:
            if isinstance(outcome, Status):
                statuses[position] = outcome
            else:
                scores[position] = outcome
                statuses[position] = Status.SCORED if position == positions[0] else Status.DUPLICATE
    ranking = None if tiers is None else tuple(_tier_ids(group, distinct, tier) for tier in tiers)
    return Verdict(tuple(statuses), tuple(scores), ranking, analysis, attempts, tokens, rejections=rejections)


def expand(group: Group, distinct: DistinctCandidates, verdict: TextVerdict) -> Verdict:
    """`expand_to_duplicates` of a verdict by text."""
    return expand_to_duplicates(
        group,
        distinct,
        [verdict.outcomes[k] for k in range(len(distinct.texts))],
        tiers=verdict.tiers,
        analysis=verdict.analysis,
        attempts=verdict.attempts,
        tokens=verdict.tokens,
        rejections=verdict.rejections,
    )


def content_digest(task: TranslationTask, texts: Sequence[str], settings: str = "") -> str:
    """SHA-256 of a task, the translations in this order, and the settings."""
    context = [task.context] if task.context else []
    content = [task.source, task.src_lang, task.trg_lang, task.reference, list(texts), settings, *context]
    return hashlib.sha256(json.dumps(content).encode("ascii")).hexdigest()


def _merge_copies(
    distinct: DistinctCandidates, outcomes: Sequence[Outcome]
) -> tuple[DistinctCandidates, list[Outcome]]:
    """Copies that were judged one by one as one text: the mean of their scores, or the first status without any."""
    positions: dict[str, list[int]] = {}
    by_text: dict[str, list[Outcome]] = {}
    for text, members, outcome in zip(distinct.texts, distinct.members, outcomes, strict=True):
        positions.setdefault(text, []).extend(members)
        by_text.setdefault(text, []).append(outcome)
    means: list[Outcome] = []
    for of_text in by_text.values():
        scores = [outcome for outcome in of_text if not isinstance(outcome, Status)]
        means.append(math.fsum(scores) / len(scores) if scores else of_text[0])
    return DistinctCandidates(tuple(positions), tuple(map(tuple, positions.values())), distinct.excluded), means


def _tier_ids(group: Group, distinct: DistinctCandidates, tier: Sequence[int]) -> tuple[str, ...]:
    positions = sorted(position for index in tier for position in distinct.members[index])
    return tuple(group.candidates[position].candidate_id for position in positions)
