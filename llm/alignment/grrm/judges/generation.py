"""Querying a generative judge, with retries until its reply can be parsed."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypedDict, TypeVar

from grrm.gqm.chat import render_chatml
from grrm.gqm.fences import FENCED, Guard
from grrm.gqm.grammar import Rejection, RejectReason
from grrm.gqm.groups import Status
from grrm.judges.interface import CUT_TOKENS, GeneratedText, TextGenerator, TokenChoices, least_tokens
from grrm.judges.metrics import JudgeMetrics

T = TypeVar("T")
# The `finish_reason` of a generator that marks failures, and the status it gives the candidates.
UNANSWERED = {
    "timeout": Status.JUDGE_TIMEOUT,
    "unreachable": Status.JUDGE_UNREACHABLE,
    "too_long": Status.TOO_LONG,
}


@dataclass(frozen=True, slots=True)
class JudgeSampling:
    """Sampling parameters of the judge.

    The first attempt uses `temperature`; unparsable replies are resampled, up to `retries` times, at
    `retry_temperature` (0 and 1 in GRRM's inference tool). `seed` and a question's key determine every reply,
    independent of the rest of the batch. Replies have `top_logprobs` alternatives of each of their tokens.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    max_new_tokens: int = 8192
    retries: int = 6
    retry_temperature: float = 1.0
    seed: int = 0
    top_logprobs: int = 0


class GeneratorSettings(TypedDict):
    """The fields of `GeneratorJudge` but the generator."""

    prompt_length: int
    sampling: JudgeSampling
    guard: Guard
    render: Callable[[str], str]
    metrics: JudgeMetrics


@dataclass
class GeneratorJudge:
    """Base of the judges that ask a generator.

    `prompt_length` is the maximum judge prompt in the generator's tokens. `guard` escapes texts against prompt
    injection; a source that it cannot escape is UNSAFE_SOURCE. `render` applies the chat template of the judge's model.
    """

    generator: TextGenerator
    prompt_length: int = 2048
    sampling: JudgeSampling = field(default_factory=JudgeSampling)
    guard: Guard = FENCED
    render: Callable[[str], str] = render_chatml
    metrics: JudgeMetrics = field(default_factory=JudgeMetrics)

    def fits(self, prompt: str) -> bool:
        """Return whether the prompt is within the limit."""
        count, limit = self.generator.count_tokens, self.prompt_length
        return limit == sys.maxsize or (least_tokens(count, prompt, limit) <= limit and count(prompt) <= limit)

    def size(self, text: str) -> int:
        """The tokens of `text`, or some number above `prompt_length`; 0 where that is no limit."""
        count, limit = self.generator.count_tokens, self.prompt_length
        if limit == sys.maxsize:
            return 0
        least = least_tokens(count, text, limit)
        return least if least > limit else count(text)

    def may_fit(self, sizes: Iterable[int]) -> bool:
        """Return whether a prompt with texts of these sizes can be within the limit."""
        return sum(max(size - CUT_TOKENS, 0) for size in sizes) <= self.prompt_length


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """One complete prompt, the key its seeds are derived from, and the parser of the reply.

    `cut_is_readable` is for replies whose meaning does not depend on the truncated rest.
    """

    key: str
    prompt: str
    parse: Callable[[str], T | Rejection]
    cut_is_readable: bool = False


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """The last reply to a question: its text, its parsed value, the number of attempts, and the tokens of all of them.

    `parsed` is a Status if the model timed out, was unreachable, or the prompt was too long, before a reply could be
    parsed; `text` is then the last unparsable reply, if any. `rejections` has the reason for each unparsable reply.
    `choices` are the alternatives of the tokens of `text`, where they were asked for.
    """

    text: str
    parsed: T | Rejection | Status
    attempts: int
    tokens: int
    rejections: tuple[str, ...] = ()
    choices: tuple[TokenChoices, ...] = ()


def ask(
    generator: TextGenerator,
    questions: Sequence[Question[T]],
    sampling: JudgeSampling,
    metrics: JudgeMetrics | None = None,
) -> list[Reply[T]]:
    """One reply per question, order kept: one batch for all, then batches with the unparsable ones only.

    A reply that was truncated at `max_new_tokens` counts as unparsable, unless the question allows it. A question that
    the generator marks as failed is not retried. Counts are added to `metrics`.
    """
    metrics = JudgeMetrics() if metrics is None else metrics
    metrics.add("questions", len(questions))
    replies: dict[int, Reply[T]] = {}
    open_questions = list(range(len(questions)))
    further = {"top_logprobs": sampling.top_logprobs} if sampling.top_logprobs else {}
    for attempt in range(sampling.retries + 1):
        if not open_questions:
            break
        metrics.add("retries", len(open_questions) if attempt else 0)
        start_s = time.perf_counter()
        texts = generator.generate_text(
            [questions[i].prompt for i in open_questions],
            temperature=sampling.retry_temperature if attempt else sampling.temperature,
            top_p=sampling.top_p,
            max_new_tokens=sampling.max_new_tokens,
            seeds=[attempt_seed(questions[i].key, attempt, sampling.seed) for i in open_questions],
            **further,
        )
        metrics.add("model_milliseconds", 1e3 * (time.perf_counter() - start_s))
        metrics.add("tokens_written", sum(generated.n_tokens for generated in texts))
        for i, generated in zip(open_questions, texts, strict=True):
            replies[i] = _reply(questions[i], generated, replies.get(i))
        open_questions = [i for i in open_questions if isinstance(replies[i].parsed, Rejection)]
    metrics.add("unanswered", sum(isinstance(reply.parsed, Status) for reply in replies.values()))
    return [replies[i] for i in range(len(questions))]


def status_of(failure: Rejection | Status) -> Status:
    """The status of candidates whose question has no parsable reply."""
    return failure if isinstance(failure, Status) else Status.JUDGE_UNPARSABLE


def _reply(question: Question[T], generated: GeneratedText, before: Reply[T] | None) -> Reply[T]:
    attempts, tokens, rejections = (before.attempts, before.tokens, before.rejections) if before else (0, 0, ())
    tokens += generated.n_tokens
    failure = UNANSWERED.get(generated.finish_reason)
    if failure is not None:
        return Reply(before.text if before else "", failure, attempts, tokens, rejections)
    is_cut = generated.finish_reason == "length" and not question.cut_is_readable
    parsed = Rejection(RejectReason.TRUNCATED, generated.text[-80:]) if is_cut else question.parse(generated.text)
    if isinstance(parsed, Rejection):
        rejections = (*rejections, parsed.reason.value)
    return Reply(generated.text, parsed, attempts + 1, tokens, rejections, generated.tokens)


def attempt_seed(key: str, attempt: int, seed: int) -> int:
    """A 31-bit seed that depends only on the arguments, equal on every machine and in every process."""
    digest = hashlib.sha256(f"{seed}/{attempt}/{key}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") >> 1
