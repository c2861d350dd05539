"""How words are spelled, as vectors, and how far a group of candidates agrees on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grrm.errors import UserError
from grrm.rl.growth.stream import JudgeTokens, candidate_places

_LONGEST = 3  # characters of an n-gram; longer ones say little more, in words of a few characters
OWN_SHARE = 0.35  # between 0, where saying the usual often is all, and 0.5, where it is the distance that counts


def spelling_codes(texts: Sequence[str], size: int, seed: int) -> np.ndarray:
    """Vectors [V, size] whose products are about the number of n-grams of up to 3 characters that two words share.

    Every n-gram has a random direction (a random projection keeps products: Johnson and Lindenstrauss), so the sum over
    a sentence stands for its bag of n-grams, which is what chrF compares. Blanks do not count, as in chrF. A word
    without a character is 0.
    """
    places: dict[str, int] = {}
    of_words = [_ngrams(text, places) for text in texts]
    directions = np.random.default_rng(seed).normal(size=(len(places), size)).astype(np.float32) / size**0.5
    codes_VS = np.zeros((len(texts), size), np.float32)
    for word, ngrams in enumerate(of_words):
        if ngrams:
            codes_VS[word] = directions[ngrams].sum(0)
    return codes_VS


def _ngrams(text: str, places: dict[str, int]) -> list[int]:
    letters = "".join(text.split())
    ngrams = (letters[at : at + n] for n in range(1, _LONGEST + 1) for at in range(len(letters) - n + 1))
    return [places.setdefault(ngram, len(places)) for ngram in ngrams]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far a candidate says what its group says, on a scale measured on typical groups.

    With m the mean code of a candidate's words and c that of all candidates', x = m c - c c - b (m m - M), b =
    `OWN_SHARE` and M the group's mean of m m: about 0 on average, and nearly the cosine of m and c from its mean,
    without a division. `codes_VS` have a mean square of 1 over typical words, candidates' m m is `square` on average,
    and x has the standard deviation `spread` within a group.
    """

    codes_VS: np.ndarray
    square: float
    spread: float

    @classmethod
    def measure(
        cls, codes_VS: np.ndarray, words: np.ndarray, prompts: Sequence[Sequence[int]], tokens: JudgeTokens
    ) -> Agreement:
        """Scale the codes over `words` and measure x on the prompts' groups.

        Raises UserError where no group has candidates that differ.
        """
        codes_VS = np.array(codes_VS, np.float32)
        codes_VS[[tokens.begin, *tokens.opens, tokens.end, *tokens.asks]] = 0
        square = float((codes_VS[words] ** 2).mean())
        codes_VS /= max(square, 1e-12) ** 0.5
        groups = [mean_codes(codes_VS[list(prompt)], candidate_places(prompt, tokens)) for prompt in prompts]
        groups = [(means_NS, all_S) for means_NS, all_S in groups if len(means_NS) > 1]
        spread = float(np.mean([agreements(*group).std() for group in groups])) if groups else 0.0
        if spread == 0:
            raise UserError(
                "no prompt has candidates that differ to measure a group judge's scales on; give rows of groups"
            )
        own_squares = np.concatenate([(means_NS**2).sum(1) for means_NS, _ in groups])
        return cls(codes_VS, float(own_squares.mean()), spread)


def mean_codes(codes_TS: np.ndarray, candidates: Sequence[slice]) -> tuple[np.ndarray, np.ndarray]:
    """m [N, size] and c [size] of a prompt whose words have these codes and whose candidates have these places."""
    words = [codes_TS[place] for place in candidates]
    if not words:
        return np.zeros((0, codes_TS.shape[1]), np.float32), np.zeros(codes_TS.shape[1], np.float32)
    return np.stack([code_TS.mean(0) for code_TS in words]), np.concatenate(words).mean(0)


def agreements(means_NS: np.ndarray, all_S: np.ndarray) -> np.ndarray:
    """x of every candidate of a group."""
    squares_N = (means_NS**2).sum(1)
    return np.asarray((means_NS - all_S) @ all_S - OWN_SHARE * (squares_N - squares_N.mean()))
