"""The group judge: one prompt per group, all distinct candidates compared in one reply."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from grrm.errors import UserError
from grrm.gqm.context import context_texts, group_prompt, nearest_context
from grrm.gqm.grammar import Mode, Rejection, parse_verdict
from grrm.gqm.groups import Group, Status, Verdict, tiers_of
from grrm.gqm.languages import CANDIDATE_IDS, MAX_CANDIDATES_TRAINED
from grrm.judges.cache import CachedJudge
from grrm.judges.chunk import ChunkedJudge
from grrm.judges.dedup import (
    DistinctCandidates,
    DistinctJudge,
    dedup_texts,
    each_by_itself,
    expand_to_duplicates,
    without_longest,
)
from grrm.judges.generation import GeneratorJudge, GeneratorSettings, Question, Reply, ask, status_of
from grrm.judges.interface import PIECE_CHARS, CountingJudge, Judge, TextGenerator
from grrm.judges.permute import PermutingJudge
from grrm.judges.score_reading import WrittenScores, group_spans, score_means
from grrm.judges.spec import judge
from grrm.judges.sqm import SQMOptions

MAX_PERMUTATIONS = 64


@judge("gqm", "grrm", help="generative group judge", needs="generator")
class GQMOptions(SQMOptions):
    """Options of the group judge.

    `shuffle` and `permutations` work against position bias (see `PermutingJudge`); `cache_size` is the number of cached
    verdicts, 0 for none.

    Above `max_candidates` distinct translations, by default the eight that GRRM was trained with, a group is judged in
    chunks or gets a status (`too_many`: "chunk" or "refuse"). If the prompt is too long, the longest candidates are
    left out or the group gets the status (`too_long`: "drop_longest" or "refuse").

    With `show_copies` a translation is shown as often as it was sampled, if all copies fit into `max_candidates` and
    the prompt: frequency is evidence too.
    """

    prompt_type: Literal["ranking_score", "score", "ranking"] = "ranking_score"
    add_example: bool = False
    shuffle: bool = False
    permutations: Annotated[int, Field(ge=1, le=MAX_PERMUTATIONS)] = 1
    cache_size: Annotated[int, Field(ge=0)] = 0
    max_candidates: Annotated[int, Field(ge=2, le=len(CANDIDATE_IDS))] = MAX_CANDIDATES_TRAINED
    too_many: Literal["chunk", "refuse"] = "chunk"
    too_long: Literal["drop_longest", "refuse"] = "drop_longest"
    show_copies: bool = False

    sees_group: ClassVar[bool] = True

    @model_validator(mode="after")
    def _has_scores_to_read(self) -> GQMOptions:
        if self.score_reading != "text" and self.prompt_type == "ranking":
            raise UserError(
                f"Judge option 'score_reading' is {self.score_reading!r}, but replies of prompt_type 'ranking' have "
                "no scores; give prompt_type 'score' or 'ranking_score'."
            )
        return self

    @property
    def is_read_by_position(self) -> bool:
        """Return whether the compatible parser takes the numbers of a reply by their place."""
        return (self.mode, self.prompt_type) == ("compat", "score")

    def over(self, generator: TextGenerator, settings: GeneratorSettings) -> Judge:
        """Put around the group judge what the options ask for: chunks outside, then permutations, then the cache.

        Every chunk is so averaged over permutations of its own: the anchor moves like every other candidate, and a
        failed one spoils no other chunk. The cache has one entry per prompt, so that only what failed is asked about
        again.
        """
        judge: CountingJudge = GQMJudge(generator, **settings, options=self)
        if self.cache_size:
            judge = CachedJudge(judge, self.cache_size)
        if self.shuffle or self.permutations > 1:
            judge = PermutingJudge(judge, self.permutations, self.shuffle, self.seed)
        if self.too_many == "chunk":
            judge = ChunkedJudge(judge, self.max_candidates)
        return DistinctJudge(judge, settings["guard"].is_safe, self.max_candidates if self.show_copies else 0)


@dataclass(frozen=True, slots=True)
class GroupPrompt:
    """The prompt for a group, in which candidate A, B, … is `distinct.texts[0]`, `[1]`, …

    `prompt` is None if the judge is not asked; `blocked` has the reason.
    """

    prompt: str | None
    distinct: DistinctCandidates
    blocked: Status | None = None


@dataclass
class GQMJudge(GeneratorJudge):
    """Scores groups with a generative group judge (GRRM) behind `generator`; itself behind `DistinctJudge`.

    If a prompt is too long, by our count or to the generator, copies are left out first. Texts are never truncated.
    More than `max_candidates` are TOO_MANY_CANDIDATES, fewer than two distinct ones SINGLE_CANDIDATE.

    Replies that are unparsable after all retries are JUDGE_UNPARSABLE, those that a generator marks as failed
    JUDGE_TIMEOUT or JUDGE_UNREACHABLE; the verdict's `analysis` is the last reply in full. A verdict depends on the
    prompt only, not on ids or on the rest of the batch.

    With `score_reading` "expected" scores are means by probability (see `expected_scores`), which the ranking follows;
    a score without probabilities is the written one.
    """

    options: GQMOptions = field(default_factory=GQMOptions)
    name: str = "gqm"

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group, order kept, from one batch of prompts (and one more per round of retries)."""
        plans = [self.plan(group) for group in groups]
        pending = [i for i, plan in enumerate(plans) if plan.prompt is not None]
        replies: dict[int, Reply[ScoredTiers]] = {}
        while pending:
            answers = ask(self.generator, [self._question(plans[i]) for i in pending], self.sampling, self.metrics)
            if self.options.score_reading != "text":
                answers = self._read_again([plans[i].prompt or "" for i in pending], answers)
            replies.update(zip(pending, answers, strict=True))
            size = len if self.prompt_length == sys.maxsize else self.size
            refused = [i for i in pending if replies[i].parsed is Status.TOO_LONG]
            shorter = {i: plan for i in refused if (plan := self._shorter(groups[i], plans[i], size)) is not None}
            pending = [i for i, plan in shorter.items() if plan.prompt is not None]
            plans = [shorter.get(i, plan) for i, plan in enumerate(plans)]
        return [
            _verdict_of_reply(group, plan.distinct, replies[i]) if i in replies else _blocked_verdict(group, plan)
            for i, (group, plan) in enumerate(zip(groups, plans, strict=True))
        ]

    def _read_again(self, prompts: Sequence[str], replies: list[Reply[ScoredTiers]]) -> list[Reply[ScoredTiers]]:
        """The replies with expected scores in the place of the written ones, and the ranking that these imply."""
        written = {
            i: WrittenScores(prompt, reply.text, reply.choices, scores, group_spans(reply.text, len(scores)))
            for i, (prompt, reply) in enumerate(zip(prompts, replies, strict=True))
            if isinstance(reply.parsed, ScoredTiers) and (scores := reply.parsed.scores)
        }
        means = score_means(self.generator, list(written.values()), self.options.score_reading, self.metrics)
        read = dict(zip(written, means, strict=True))
        return [
            replace(reply, parsed=ScoredTiers(read[i], tiers_of(read[i]))) if i in read else reply
            for i, reply in enumerate(replies)
        ]

    def plan(self, group: Group) -> GroupPrompt:
        """The group's prompt; blocked when there are too few or too many candidates, or no two fit `prompt_length`.

        Raises what `gqm_prompt` raises on an unknown language or prompt type.
        """
        size = cache(self.size)
        plan: GroupPrompt | None = self._prompt(group, each_by_itself(group), size)
        while plan is not None and plan.blocked is Status.TOO_LONG:
            plan = self._shorter(group, plan, size)
        return plan or GroupPrompt(None, dedup_texts(group), Status.TOO_LONG)

    def _shorter(self, group: Group, plan: GroupPrompt, size: Callable[[str], int]) -> GroupPrompt | None:
        """The prompt without copies, else without the longest translation; None where neither can be left out."""
        distinct = plan.distinct
        if len(set(distinct.texts)) < len(distinct.texts):
            return self._prompt(group, dedup_texts(group), size)
        if self.options.too_long == "refuse" or len(distinct.texts) == 2:
            return None
        return self._prompt(group, without_longest(distinct, size), size)

    def _prompt(self, group: Group, distinct: DistinctCandidates, size: Callable[[str], int]) -> GroupPrompt:
        if len(set(distinct.texts)) < 2:
            return GroupPrompt(None, distinct, Status.SINGLE_CANDIDATE)
        if len(distinct.texts) > self.options.max_candidates:
            return GroupPrompt(None, distinct, Status.TOO_MANY_CANDIDATES)
        task = group.task
        n_context = self.options.context_segments
        if not all(map(self.guard.is_safe, [task.source, *context_texts(nearest_context(task, n_context))])):
            return GroupPrompt(None, distinct, Status.UNSAFE_SOURCE)
        if sum(map(len, distinct.texts)) > PIECE_CHARS and not self.may_fit(map(size, distinct.texts)):
            return GroupPrompt(None, distinct, Status.TOO_LONG)
        how = (self.options.prompt_type, self.options.add_example, n_context, self.guard.escape)
        prompt = self.render(group_prompt(task, distinct.texts, *how))
        return GroupPrompt(prompt, distinct) if self.fits(prompt) else GroupPrompt(None, distinct, Status.TOO_LONG)

    def _question(self, plan: GroupPrompt) -> Question[ScoredTiers]:
        def read(text: str) -> ScoredTiers | Rejection:
            return read_group_reply(text, len(plan.distinct.texts), self.options.prompt_type, self.options.mode)

        prompt = plan.prompt or ""
        return Question(prompt, prompt, read)


@dataclass(frozen=True, slots=True)
class ScoredTiers:
    """A parsed reply: one score (0 to 10) per candidate shown, and their indexes in tiers, best first."""

    scores: tuple[float, ...]
    tiers: tuple[tuple[int, ...], ...]


def read_group_reply(text: str, n_candidates: int, prompt_type: str, mode: Mode) -> ScoredTiers | Rejection:
    """The reply's scores by the verdict grammar; for a ranking without scores they follow from the tiers.

    The worst tier scores 1 and every better one 1 more (the reference's training reward); more than ten tiers are
    scaled to 10/n … 10. Raises what `parse_verdict` raises on an unknown prompt type or mode.
    """
    parsed = parse_verdict(text, n_candidates, prompt_type, mode)
    if isinstance(parsed, Rejection):
        return parsed
    scores = _tier_scores(parsed.ranking or (), n_candidates) if parsed.scores is None else parsed.scores
    return ScoredTiers(scores, parsed.ranking or tiers_of(scores))


def _tier_scores(ranking: Sequence[Sequence[int]], n_candidates: int) -> tuple[float, ...]:
    scores = [0.0] * n_candidates
    step = 1.0 if len(ranking) <= 10 else 10.0 / len(ranking)
    for height, tier in enumerate(reversed(ranking), start=1):
        for index in tier:
            scores[index] = height * step
    return tuple(scores)


def _blocked_verdict(group: Group, plan: GroupPrompt) -> Verdict:
    """The verdict of a group that is not asked about."""
    assert plan.blocked is not None
    return expand_to_duplicates(group, plan.distinct, [plan.blocked] * len(plan.distinct.texts))


def _verdict_of_reply(group: Group, distinct: DistinctCandidates, reply: Reply[ScoredTiers]) -> Verdict:
    outcomes: Sequence[float | Status]
    if isinstance(reply.parsed, Rejection | Status):
        outcomes, tiers = [status_of(reply.parsed)] * len(distinct.texts), None
    else:
        outcomes, tiers = reply.parsed.scores, reply.parsed.tiers
    return expand_to_duplicates(
        group,
        distinct,
        outcomes,
        tiers=tiers,
        analysis=reply.text,
        attempts=reply.attempts,
        tokens=reply.tokens,
        rejections=reply.rejections,
    )
