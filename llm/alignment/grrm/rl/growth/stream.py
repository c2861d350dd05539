"""Where a grown judge keeps what: the parts of its residual stream, and the tokens its prompts are built of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class JudgeTokens:
    """The single tokens that a judge's prompts and verdicts consist of, beside text.

    `opens[i]` stands before candidate i, `asks[i]` before its score in the verdict; a prompt begins with `begin`, and
    `end` closes the last candidate, however many there are. `stop` ends a translation of the policy, and a verdict.
    """

    begin: int
    opens: tuple[int, ...]
    end: int
    asks: tuple[int, ...]
    scores: tuple[int, ...]
    stop: int

    @property
    def closes(self) -> tuple[int, ...]:
        """What may follow a candidate."""
        return (*self.opens[1:], self.end)


def candidate_places(prompt: Sequence[int], tokens: JudgeTokens) -> list[slice]:
    """Where the words of each candidate of a prompt are, without candidates that have none."""
    marks = [at for at, token in enumerate(prompt) if token in tokens.opens or token == tokens.end]
    starts = [at + 1 for at in marks if prompt[at] != tokens.end]
    return [slice(start, stop) for start, stop in zip(starts, [*marks[1:], len(prompt)], strict=False) if start < stop]


@dataclass(frozen=True, slots=True)
class Stream:
    """The dimensions of the stream, by what they hold.

    The policy's own stand first. `written` and `expected` are `rank` numbers each whose product says how much the
    policy expected the token that it reads; `expected` drowns what the policy had in its first dimensions. The single
    ones are for every word how much it was `expected_here`, and where a score is due the `mean` of that over the
    candidate's words, how expected its `ending` was, the mean over all candidates (`group_mean`), and how far the
    candidate says what all do (`agreement`); behind a score, whether there are `more` candidates. `spelled` is the code
    of how a word is spelled, and where a score is due or a candidate ends the mean over its words, `square` that times
    itself. `usual`, behind what was expected, is the mean over all candidates. Marks have one dimension for the source,
    one for each candidate and one for the end of the prompt: `begins` which of them a token begins, `begun` which have
    begun (they share 1), `due` whose score is due at this token, and `was_due` at the one before.
    """

    policy: int
    rank: int
    n_candidates: int
    head_size: int
    spelling: int = 0

    @property
    def n_marks(self) -> int:
        return self.n_candidates + 2

    @property
    def written(self) -> np.ndarray:
        return self.policy + np.arange(self.rank)

    @property
    def expected(self) -> np.ndarray:
        return np.arange(self.rank)

    @property
    def spelled(self) -> np.ndarray:
        return self.policy + self.rank + np.arange(self.spelling)

    @property
    def usual(self) -> np.ndarray:
        return self.rank + np.arange(self.spelling)

    @property
    def singles(self) -> np.ndarray:
        """`expected_here`, `mean`, `ending`, `group_mean`, `more`, `agreement`, `square`."""
        return self.policy + self.rank + self.spelling + np.arange(7)

    @property
    def expected_here(self) -> int:
        return int(self.singles[0])

    @property
    def mean(self) -> int:
        return int(self.singles[1])

    @property
    def ending(self) -> int:
        return int(self.singles[2])

    @property
    def group_mean(self) -> int:
        return int(self.singles[3])

    @property
    def more(self) -> int:
        return int(self.singles[4])

    @property
    def agreement(self) -> int:
        return int(self.singles[5])

    @property
    def square(self) -> int:
        return int(self.singles[6])

    @property
    def begins(self) -> np.ndarray:
        return int(self.singles[-1]) + 1 + np.arange(self.n_marks)

    @property
    def begun(self) -> np.ndarray:
        return self.begins + self.n_marks

    @property
    def due(self) -> np.ndarray:
        return self.begun + self.n_marks

    @property
    def was_due(self) -> np.ndarray:
        return self.due + self.n_marks

    @property
    def filler(self) -> int:
        """Makes what is beside the policy's dimensions as long for every word as the policy's embedding tells."""
        return int(self.was_due[-1]) + 1

    @property
    def size(self) -> int:
        """All of them, filled up to whole attention heads."""
        return -(-(self.filler + 1) // self.head_size) * self.head_size

    @property
    def n_heads(self) -> int:
        return self.size // self.head_size
