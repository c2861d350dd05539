"""The single judge: one prompt per distinct candidate, scored without seeing the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import Field

from grrm.gqm.context import (
    MAX_CONTEXT_SEGMENTS,
    check_context,
    context_texts,
    nearest_context,
    single_prompt,
    with_shown_context,
)
from grrm.gqm.grammar import Mode, Rejection, parse_sqm
from grrm.gqm.groups import Group, Status, TranslationTask, Verdict
from grrm.gqm.spans import Spans
from grrm.judges.dedup import DistinctCandidates, dedup_texts, expand_to_duplicates, spans_by_candidate
from grrm.judges.generation import GeneratorJudge, GeneratorSettings, JudgeSampling, Question, Reply, ask, status_of
from grrm.judges.generative import GenerativeOptions
from grrm.judges.interface import Judge, TextGenerator
from grrm.judges.score_reading import TOP_LOGPROBS, ScoreReading, WrittenScores, score_means, single_span
from grrm.judges.spec import judge


class ContextOptions(GenerativeOptions):
    """Options of a judge of translations.

    The prompt shows up to `context_segments` source segments before the source in its document, with their
    translations; tasks must bring them.
    """

    context_segments: Annotated[int, Field(ge=0, le=MAX_CONTEXT_SEGMENTS)] = 0

    def check_task(self, task: TranslationTask) -> None:
        """Raise UserError for a language that a prompt cannot name, and for a task without the context to show."""
        super().check_task(task)
        check_context(task, self.context_segments)


@judge("sqm", help="generative judge of one translation", needs="generator")
class SQMOptions(ContextOptions):
    """Options of a judge that writes scores.

    `score_reading` "text" takes the score that the reply has, "expected" the mean of all scores by their probability
    in its place (see `expected_scores`), which needs an engine that gives log-probabilities; "expected_digit" is faster
    and for judges that were taught scores up to 9.
    """

    score_reading: ScoreReading = "text"

    def sampling(self) -> JudgeSampling:
        is_text = self.score_reading == "text"
        return super().sampling() if is_text else replace(super().sampling(), top_logprobs=TOP_LOGPROBS)

    def over(self, generator: TextGenerator, settings: GeneratorSettings) -> Judge:
        return SQMJudge(
            generator,
            **settings,
            mode=self.mode,
            score_reading=self.score_reading,
            context_segments=self.context_segments,
        )


@dataclass
class SQMJudge(GeneratorJudge):
    """Scores each distinct translation on its own with a generative judge behind `generator`.

    Settings as for the group judge. A candidate whose prompt exceeds `prompt_length` tokens is TOO_LONG, one whose
    replies stay unparsable JUDGE_UNPARSABLE, one that a generator marks as failed JUDGE_TIMEOUT or JUDGE_UNREACHABLE;
    the others keep their scores. There is no ranking, and the verdict's `analysis` holds the last reply about each
    candidate under its id.

    With `score_reading` "expected" a score is the mean by probability (see `expected_scores`).

    Other judges of one candidate at a time override `prompt_of`, `shown_of`, `imitates_prompt` and `read`, and those
    that mark errors `spans_of`.
    """

    needs_reference: ClassVar[bool] = False  # a group without one is MISSING_REFERENCE
    cut_is_readable: ClassVar[bool] = False  # see `Question`

    mode: Mode = "tolerant"
    name: str = "sqm"
    score_reading: ScoreReading = "text"
    context_segments: int = 0

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group, order kept, from one batch of all groups' prompts (and one per round of retries)."""
        plans = [self._plan(group) for group in groups]
        questions = {
            (g, k): question
            for g, (group, plan) in enumerate(zip(groups, plans, strict=True))
            for k in range(len(plan.texts))
            if (question := self._question(group, plan, k)) is not None
        }
        answers = ask(self.generator, list(questions.values()), self.sampling, self.metrics)
        if self.score_reading != "text":
            answers = self._read_again([question.prompt for question in questions.values()], answers)
        replies = dict(zip(questions, answers, strict=True))
        return [
            self._verdict(group, plan, [replies.get((g, k)) for k in range(len(plan.texts))])
            for g, (group, plan) in enumerate(zip(groups, plans, strict=True))
        ]

    def _read_again(self, prompts: Sequence[str], replies: list[Reply[float]]) -> list[Reply[float]]:
        """The replies with expected scores in the place of the written ones."""
        written = {
            i: WrittenScores(prompt, reply.text, reply.choices, (reply.parsed,), [single_span(reply.text)])
            for i, (prompt, reply) in enumerate(zip(prompts, replies, strict=True))
            if isinstance(reply.parsed, float)
        }
        means = score_means(self.generator, list(written.values()), self.score_reading, self.metrics)
        read = dict(zip(written, means, strict=True))
        return [replace(reply, parsed=read[i][0]) if i in read else reply for i, reply in enumerate(replies)]

    def prompt_of(self, task: TranslationTask, text: str) -> str:
        """The user turn that asks about one candidate's text; both texts are escaped already."""
        return single_prompt(task, text)

    def shown_of(self, reference: str) -> str:
        """The part of a task's reference that the prompt shows."""
        return reference

    def imitates_prompt(self, text: str) -> bool:
        """True if a candidate's text could be mistaken for a part of the prompt although the guard accepts it."""
        return False

    def read(self, reply: str) -> float | Rejection:
        """The score, 0 to 10, in a reply."""
        return parse_sqm(reply, self.mode)

    def spans_of(self, reply: Reply[float], text: str) -> Spans | None:
        """The errors of a candidate's text by a reply that has a score; None for a judge that marks none."""
        return None

    def _verdict(self, group: Group, plan: DistinctCandidates, replies: Sequence[Reply[float] | None]) -> Verdict:
        verdict = _verdict_of_replies(group, plan, replies)
        spans = {
            text: self.spans_of(reply, text)
            for text, reply in zip(plan.texts, replies, strict=True)
            if reply is not None and isinstance(reply.parsed, float)
        }
        if all(own is None for own in spans.values()):
            return verdict
        return replace(verdict, spans=spans_by_candidate(group, spans))

    def _plan(self, group: Group) -> DistinctCandidates:
        task = group.task
        if self.needs_reference and not self.shown_of(task.reference or "").strip():
            return _all_excluded(group, Status.MISSING_REFERENCE)
        shown = [task.source, *context_texts(nearest_context(task, self.context_segments))]
        shown += [self.shown_of(task.reference or "")] if self.needs_reference else []
        if not all(map(self.guard.is_safe, shown)):
            return _all_excluded(group, Status.UNSAFE_SOURCE)
        return dedup_texts(group, lambda text: self.guard.is_safe(text) and not self.imitates_prompt(text))

    def _question(self, group: Group, plan: DistinctCandidates, k: int) -> Question[float] | None:
        """The question about distinct text `k`, None when it is too long to ask."""
        task, escape = group.task, self.guard.escape
        reference = escape(self.shown_of(task.reference or "")) if self.needs_reference else None
        shown = replace(with_shown_context(task, self.context_segments, escape), reference=reference)
        prompt = self.render(self.prompt_of(shown, escape(plan.texts[k])))
        return Question(prompt, prompt, self.read, self.cut_is_readable) if self.fits(prompt) else None


def _all_excluded(group: Group, status: Status) -> DistinctCandidates:
    return DistinctCandidates((), (), dict.fromkeys(range(len(group.candidates)), status))


def _verdict_of_replies(group: Group, plan: DistinctCandidates, replies: Sequence[Reply[float] | None]) -> Verdict:
    outcomes: list[float | Status] = []
    analyses: list[str] = []
    for positions, reply in zip(plan.members, replies, strict=True):
        if reply is None:
            outcomes.append(Status.TOO_LONG)
            continue
        outcomes.append(status_of(reply.parsed) if isinstance(reply.parsed, Rejection | Status) else reply.parsed)
        analyses.append(f"[{group.candidates[positions[0]].candidate_id}]\n{reply.text}")
    answered = [reply for reply in replies if reply is not None]
    return expand_to_duplicates(
        group,
        plan,
        outcomes,
        analysis="\n\n".join(analyses),
        attempts=sum(reply.attempts for reply in answered),
        tokens=sum(reply.tokens for reply in answered),
        rejections=tuple(reason for reply in answered for reason in reply.rejections),
    )
