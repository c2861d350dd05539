"""Interfaces of judges, and of the text generators behind generative judges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from grrm.gqm.groups import Group, Verdict
from grrm.judges.metrics import JudgeMetrics


class Judge(Protocol):
    """Scores whole groups; the verdicts come back in the order of the groups."""

    name: str

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group, each aligned with the group's candidates. Never raises on bad candidates."""
        ...


class CountingJudge(Judge, Protocol):
    """A judge that counts in `metrics`, which a judge around it shares."""

    metrics: JudgeMetrics


@dataclass(frozen=True, slots=True)
class TokenChoices:
    """A generated token's text, and the texts and log-probabilities of the most probable tokens in its place."""

    text: str
    choices: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """A generated reply; `finish_reason` is "stop" (eos or stop string) or "length".

    A generator that marks failures instead of raising returns an empty text with the reason "timeout" or "unreachable"
    (no server accepted the prompt). Every generator may return "too_long": only the server knows the limit of a prompt.

    `tokens` are those of the text, if `top_logprobs` of them were requested; the last may be an end token that the text
    does not show.
    """

    text: str
    finish_reason: str
    n_tokens: int
    tokens: tuple[TokenChoices, ...] = ()


class TextGenerator(Protocol):
    """Text in, text out, over any engine. Prompts are complete: chat template already applied."""

    def generate_text(
        self,
        prompts: Sequence[str],
        *,
        temperature: float,
        top_p: float = 1.0,
        max_new_tokens: int,
        seeds: Sequence[int] | None = None,
        top_logprobs: int = 0,
    ) -> list[GeneratedText]:
        """One reply per prompt, order kept; `seeds[i]` makes reply i reproducible.

        With `top_logprobs` above 0 the replies have `tokens`, with so many choices each.
        """
        ...

    def count_tokens(self, prompt: str) -> int:
        """Length of `prompt` in the judge's tokens (no special tokens added)."""
        ...


PIECE_CHARS = 16_384  # tokenised in some milliseconds, during which a tokenizer blocks other threads
CUT_TOKENS = 64  # more than a cut between two pieces can add


def least_tokens(count_tokens: Callable[[str], int], text: str, limit: int) -> int:
    """A lower bound on the tokens of `text`, above `limit` where it is certain to have more; 0 for a text of one piece.

    Counting stops above `limit`, so that refusing a text costs no more than the longest prompt.
    """
    n_tokens = 0
    for start in range(0, len(text) if len(text) > PIECE_CHARS else 0, PIECE_CHARS):
        n_tokens += max(count_tokens(text[start : start + PIECE_CHARS]) - CUT_TOKENS, 0)
        if n_tokens > limit:
            break
    return n_tokens


@dataclass(frozen=True, slots=True)
class OpenedGenerator:
    """A generator with what belongs to its model.

    `render` applies the chat template to a user's turn. `max_prompt_tokens` is the longest prompt that leaves room for
    one token, None where only the server knows. `counts_tokens` is False where `generator.count_tokens` is no more
    than an upper bound. `special_tokens` of the tokenizer may not occur in what a judge is shown. `around` is put
    around a judge on the generator.

    `continues_text` is False for the chat endpoint of servers, which gives no probabilities of tokens either.
    """

    generator: TextGenerator
    render: Callable[[str], str]
    max_prompt_tokens: int | None
    counts_tokens: bool = True
    special_tokens: tuple[str, ...] = ()
    around: Callable[[Judge], Judge] = lambda judge: judge
    continues_text: bool = True
