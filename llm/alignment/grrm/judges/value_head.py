"""Judges that are a reward model: one number per candidate from one forward pass over the group, no text generated."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Protocol

from pydantic import Field

from grrm.gqm.context import check_context
from grrm.gqm.grammar import MAX_SCORE
from grrm.gqm.groups import Group, Status, TranslationTask, Verdict
from grrm.gqm.mt_prompts import MTPromptType, mt_prompt
from grrm.judges.dedup import DistinctCandidates, Outcome, dedup_texts, expand_to_duplicates, ranking_of
from grrm.judges.interface import Judge
from grrm.judges.metrics import JudgeMetrics
from grrm.judges.spec import JudgeOptions, Process, judge

logger = logging.getLogger(__name__)
MIDDLE = 5.0  # the score of a candidate at the mean of its group
NOTABLE_SHARE = 0.01  # of scores that are clipped: above it there is a warning
ENOUGH_SCORES = 100  # to tell their share
REMEDY = "set the judge option score_scale to less than {scale:.3g}"


# The kind of reward model behind each judge.
REWARD_MODEL_KINDS = {"rm": "pairwise", "ranker": "ranker"}


@judge(*REWARD_MODEL_KINDS, help="reward models", needs="reward model")
class RewardModelOptions(JudgeOptions):
    """Options of a judge that is a reward model.

    `prompt_type` is the translation prompt that it was trained with, None for the one that its folder records, else
    Tower. `batch_tokens` is how many tokens of groups are batched together. Without `any_language_pair`, language pairs
    that it was not trained on get no score. `score_scale` multiplies differences from the group's mean before scores
    are clipped to 0 to 10.
    """

    prompt_type: MTPromptType | None = None
    batch_tokens: Annotated[int, Field(ge=1)] = 8192
    any_language_pair: bool = False
    score_scale: Annotated[float, Field(gt=0)] = 1.0

    def check_task(self, task: TranslationTask) -> None:
        """Raise UserError for a language that the prompt cannot name."""
        mt_prompt("", task.src_lang, task.trg_lang, self.prompt_type or "Tower")

    def open(self, process: Process) -> Judge:
        """Open the process's reward model as the judge."""
        return process.reward_model(process.name, self)


class GroupScorer(Protocol):
    """A reward model with its tokenizer."""

    def score(self, groups: Sequence[tuple[TranslationTask, Sequence[str]]]) -> list[list[Outcome]]:
        """For each group's translations, none of them blank, a number of any size, or the status why there is none."""
        ...


@dataclass
class RewardModelJudge:
    """Scores 0 to 10 from the numbers of a reward model: score = clip(5 + score_scale (s - mean of s in the group)).

    The model is trained on differences within a group, so only these are meaningful. A ranker's unit is ten points of
    chrF, as that of a text metric's score; an `rm` has none, and `score_scale` fits its differences into 0 to 10.
    Scores out of range are clipped and counted, with `warns` also logged, once; the ranking uses the raw outputs.

    Copies count in the mean and score as their original; with `show_copies` the model is shown them too. A blank
    translation is UNPARSABLE_CANDIDATE, a non-finite output JUDGE_UNPARSABLE. Fewer than two distinct translations with
    an output are SINGLE_CANDIDATE. `language_pairs` ("en-de") are those that the scorer does not refuse; None for all.
    The scorer shows `context_segments` of a task's context.
    """

    scorer: GroupScorer
    name: str = "ranker"
    show_copies: bool = False
    score_scale: float = 1.0
    warns: bool = True
    metrics: JudgeMetrics = field(default_factory=JudgeMetrics)
    language_pairs: Sequence[str] | None = None
    context_segments: int = 0

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group, order kept. Raises UserError for a task that no prompt can be made of."""
        for group in groups:
            check_context(group.task, self.context_segments)
        plans = [dedup_texts(_without_blanks(group)) for group in groups]
        comparable = [g for g, plan in enumerate(plans) if len(plan.texts) > 1]
        start_s = time.perf_counter()
        answers = self.scorer.score([(groups[g].task, self._shown(plans[g])) for g in comparable]) if comparable else []
        self.metrics.add("model_milliseconds", 1e3 * (time.perf_counter() - start_s))
        self.metrics.add("scored_groups", len(comparable))
        by_group = dict(zip(comparable, answers, strict=True))
        return [
            self._verdict(group, plan, by_group.get(g))
            for g, (group, plan) in enumerate(zip(groups, plans, strict=True))
        ]

    def _shown(self, plan: DistinctCandidates) -> list[str]:
        repeats = self._repeats(plan)
        return [text for text, n_shown in zip(plan.texts, repeats, strict=True) for _ in range(n_shown)]

    def _repeats(self, plan: DistinctCandidates) -> list[int]:
        """Return the number of times that the model is shown each distinct translation."""
        return [len(members) if self.show_copies else 1 for members in plan.members]

    def _verdict(self, group: Group, plan: DistinctCandidates, answer: Sequence[Outcome] | None) -> Verdict:
        if answer is None:
            return expand_to_duplicates(group, plan, [Status.SINGLE_CANDIDATE] * len(plan.texts))
        rest = iter(answer)
        numbers = [_of_text([next(rest) for _ in range(n_shown)]) for n_shown in self._repeats(plan)]
        if sum(not isinstance(number, Status) for number in numbers) < 2:
            numbers = [number if isinstance(number, Status) else Status.SINGLE_CANDIDATE for number in numbers]
        scores = self._scores(numbers, [len(members) for members in plan.members])
        return expand_to_duplicates(group, plan, scores, tiers=ranking_of(numbers))

    def _scores(self, numbers: Sequence[Outcome], counts: Sequence[int]) -> list[Outcome]:
        """Numbers as scores; the mean is that of all samples, `counts` of each text."""
        pairs = [(n, count) for n, count in zip(numbers, counts, strict=True) if not isinstance(n, Status)]
        mean = math.fsum(n * count for n, count in pairs) / max(sum(count for _, count in pairs), 1)
        moved = [n if isinstance(n, Status) else MIDDLE + self.score_scale * (n - mean) for n in numbers]
        scores = [n if isinstance(n, Status) else min(max(n, 0.0), float(MAX_SCORE)) for n in moved]
        self.metrics.add("model_scores", len(pairs))
        self.metrics.add("clipped_scores", sum(a != b for a, b in zip(moved, scores, strict=True)))
        self._warn_once()
        return scores

    def _warn_once(self) -> None:
        counts = self.metrics.values()
        n_scores, n_clipped = int(counts["model_scores"]), int(counts["clipped_scores"])
        if self.warns and n_scores >= ENOUGH_SCORES and n_clipped > NOTABLE_SHARE * n_scores:
            self.warns = False
            logger.warning("judge %s: %s", self.name, clipping(n_clipped, n_scores, self.score_scale))


def clipping(n_clipped: int, n_scores: int, scale: float) -> str:
    """Report the number of clipped scores, and the remedy."""
    share = f"{n_clipped} of {n_scores} scores were clipped to 0 to 10 and do not tell translations apart"
    return f"{share}: {REMEDY.format(scale=scale)}"


def _of_text(outcomes: Sequence[Outcome]) -> Outcome:
    """The number of a translation from those of its copies as they were shown, which differ by rounding only."""
    statuses = [outcome for outcome in outcomes if isinstance(outcome, Status)]
    if statuses:
        return statuses[0]
    number = math.fsum(float(outcome) for outcome in outcomes) / len(outcomes)
    return number if math.isfinite(number) else Status.JUDGE_UNPARSABLE


def _without_blanks(group: Group) -> Group:
    """The group with blank translations as missing ones: a model has nothing to read there."""
    candidates = (
        replace(c, translation=None) if c.translation is not None and not c.translation.strip() else c
        for c in group.candidates
    )
    return replace(group, candidates=tuple(candidates))
