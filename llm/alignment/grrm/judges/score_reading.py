"""Scores as expectations over what a judge's model could have written in the place of a score.

A model that writes `B: 9` has a probability for every score at that position. Their mean has no ties, and tells a sure
9 from one that was nearly an 8, as G-Eval does for a scale of whole numbers (Liu et al. 2023, section 2).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from grrm.gqm.languages import CANDIDATE_IDS
from grrm.judges.interface import TextGenerator, TokenChoices
from grrm.judges.metrics import JudgeMetrics

ScoreReading = Literal["text", "expected", "expected_digit"]
Span = tuple[int, int]
TOP_LOGPROBS = 20  # the default limit of servers: ten digits, and other tokens in their place
_MINOR = 0.01  # share of the probability of all scores, below which a `1` is not checked for `10`
_NUMBER = r"([0-9]+)(?![0-9]|\.[0-9])"
_OF_CANDIDATE = re.compile(rf"([A-Z])[*_`\s]*[:：][*_`\s]*{_NUMBER}")
_SINGLE = re.compile(rf"(?<![0-9.]){_NUMBER}")


def group_spans(text: str, n_candidates: int) -> list[Span | None]:
    """Return the span of each candidate's score in a group reply, on its last line with digits; None without one."""
    start, line = _last_line(text)
    by_id = {match[1]: (start + match.start(2), start + match.end(2)) for match in _OF_CANDIDATE.finditer(line)}
    return [by_id.get(candidate_id) for candidate_id in CANDIDATE_IDS[:n_candidates]]


def single_span(text: str) -> Span | None:
    """Return the span of the score in a single judge's reply."""
    start, line = _last_line(text)
    match = _SINGLE.search(line)
    return None if match is None else (start + match.start(1), start + match.end(1))


def _last_line(text: str) -> tuple[int, str]:
    lines = text.splitlines(keepends=True)
    while lines and not re.search("[0-9]", lines[-1]):
        lines.pop()
    return (sum(map(len, lines[:-1])), lines[-1]) if lines else (0, "")


@dataclass(frozen=True, slots=True)
class WrittenScores:
    """Scores in a reply: its prompt, its text and tokens, the scores as read from the text, and where they are."""

    prompt: str
    text: str
    tokens: Sequence[TokenChoices]
    scores: tuple[float, ...]
    spans: Sequence[Span | None]


@dataclass(frozen=True, slots=True)
class _Seen:
    """Probabilities of the scores at one position; `p_of_1` is that of a `1` which may be the beginning of `10`.

    `is_ten` is the probability that it is, None where what follows a `1` was not seen; `prefix` is the prompt and the
    reply up to that `1`, itself included.
    """

    by_score: Mapping[int, float]
    p_of_1: float
    is_ten: float | None
    prefix: str

    @property
    def is_open(self) -> bool:
        return self.is_ten is None and self.p_of_1 > _MINOR * (sum(self.by_score.values()) + self.p_of_1)

    def mean(self, is_ten: float) -> float:
        """sum_s s p(s) / sum_s p(s)."""
        total = math.fsum(self.by_score.values()) + self.p_of_1
        from_1 = self.p_of_1 * (1 + 9 * is_ten)
        return (math.fsum(score * p for score, p in self.by_score.items()) + from_1) / total


def expected_scores(
    generator: TextGenerator, replies: Sequence[WrittenScores], reading: ScoreReading = "expected"
) -> list[tuple[float | None, ...]]:
    """Return the expected score of each candidate of each reply; None if no token at its position is a score.

    At the token with a score's first digit, p(s) sums the probabilities of the alternatives that go on with the number
    s. They are normalised over the scores among the `TOP_LOGPROBS` most probable tokens.

    A `1` may begin `10`: if the reply has a `1` its next token tells, else the model is asked, in one batch, for the
    token behind a `1` at the position of the score. If it does not answer, the score is None.

    The reading "expected_digit" is for judges trained on scores up to 9: a `1` is a 1, nothing is asked, and a written
    10 gives None.
    """
    seen = [[_seen(reply, at, reading) for at in range(len(reply.spans))] for reply in replies]
    unanswered = {score.prefix for of_reply in seen for score in of_reply if score is not None and score.is_open}
    prefixes = sorted(unanswered)
    followed = (
        generator.generate_text(
            prefixes, temperature=0.0, max_new_tokens=1, seeds=[0] * len(prefixes), top_logprobs=TOP_LOGPROBS
        )
        if prefixes
        else []
    )
    tens = {
        prefix: _is_ten(answer.tokens[0]) if answer.tokens else None
        for prefix, answer in zip(prefixes, followed, strict=True)
    }
    return [tuple(_resolved(score, tens) for score in of_reply) for of_reply in seen]


def score_means(
    generator: TextGenerator, replies: Sequence[WrittenScores], reading: ScoreReading, metrics: JudgeMetrics
) -> list[tuple[float, ...]]:
    """`expected_scores`, and the score as it is written, counted in `metrics`, where there is none."""
    means = expected_scores(generator, replies, reading)
    metrics.add("scores_as_written", sum(mean is None for of_reply in means for mean in of_reply))
    return [
        tuple(score if mean is None else mean for mean, score in zip(of_reply, reply.scores, strict=True))
        for of_reply, reply in zip(means, replies, strict=True)
    ]


def _resolved(seen: _Seen | None, tens: Mapping[str, float | None]) -> float | None:
    if seen is None:
        return None
    is_ten = tens[seen.prefix] if seen.is_open else seen.is_ten or 0.0
    return None if is_ten is None else seen.mean(is_ten)


def _seen(reply: WrittenScores, candidate: int, reading: ScoreReading) -> _Seen | None:
    """Read the token at the score's first digit; None if it cannot be located, or no alternative is a score."""
    span = reply.spans[candidate]
    if span is None or reply.text[slice(*span)] != f"{reply.scores[candidate]:g}":  # also of 08, which begins as 0 does
        return None
    number, before = _token_at(reply.text, reply.tokens, span[0])
    if number is None:
        return None
    by_score: dict[int, float] = {}
    p_of_1 = 0.0
    for piece, logprob in reply.tokens[number].choices:
        match = re.match("[0-9]+", piece[len(before) :]) if piece.startswith(before) else None
        if match is None:
            continue
        digits, ends = match[0], len(before) + len(match[0]) < len(piece)
        if digits == "1" and not ends:
            p_of_1 += math.exp(logprob)
        elif digits == str(int(digits)) and int(digits) <= 10:
            by_score[int(digits)] = by_score.get(int(digits), 0.0) + math.exp(logprob)
    if not p_of_1 and not sum(by_score.values()):
        return None
    if reading == "expected_digit":
        return None if reply.scores[candidate] > 9 else _Seen(by_score, p_of_1, 0.0, prefix="")
    follows_1 = reply.tokens[number].text == before + "1" and number + 1 < len(reply.tokens)
    is_ten = _is_ten(reply.tokens[number + 1]) if follows_1 else None
    return _Seen(by_score, p_of_1, is_ten, reply.prompt + reply.text[: span[0]] + "1")


def _is_ten(follower: TokenChoices) -> float:
    """The probability that a `0` follows, over that and all that ends the number: what is no digit."""
    zero = math.fsum(math.exp(p) for piece, p in follower.choices if re.match("0(?![0-9])", piece))
    digits = math.fsum(math.exp(p) for piece, p in follower.choices if re.match("[0-9]", piece))
    return zero / (zero + max(0.0, 1.0 - digits)) if zero else 0.0


def _token_at(text: str, tokens: Sequence[TokenChoices], at: int) -> tuple[int | None, str]:
    """The number of the token with the character `at`, and what it has before; None where it is not to be known.

    Tokens are laid along the text from its end, where the scores are: parts of one character have no text of their own.
    """
    end, is_aligned = len(text), False
    for number in range(len(tokens) - 1, -1, -1):
        piece = tokens[number].text
        if not text[:end].endswith(piece):
            if is_aligned:
                break
            continue  # a token of the end, which the text does not show
        is_aligned, end = is_aligned or bool(piece), end - len(piece)
        if end <= at:
            return number, text[end:at]
    return None, ""
