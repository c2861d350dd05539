"""The tokens of completions as answers list them, the rules for their texts being those of vLLM 0.32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grrm.engine.api import PromptScores, TopTokens

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"  # what a character of which some bytes are missing is decoded to
CONTEXT = 4  # earlier tokens that may hold the beginning of a character


@dataclass(frozen=True, slots=True)
class ListedToken:
    """A token's text and where it begins, its log-probability (none of a prompt's first token), and alternatives."""

    text: str
    offset: int
    logprob: float | None
    top_logprobs: Sequence[tuple[str, float]]  # texts and log-probabilities, the most probable first


class TokenList:
    """Lists the tokens of one choice as they come; `decode` leaves no special token out.

    A token that ends inside a character has an empty text. The token with the last byte has the complete character.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._earlier: list[int] = []
        self._offset = 0

    def add_prompt(self, token_ids: Sequence[int], scores: PromptScores) -> list[ListedToken]:
        """List a prompt that is echoed. Its first token and the reply do not see the tokens before them."""
        first = self._listed(self._decode(token_ids[:1]), None, ())
        others = self.add(token_ids[1:], scores.logprobs, scores.top_logprobs)
        self._earlier = []
        return [first, *others]

    def add(
        self, token_ids: Sequence[int], logprobs: Sequence[float], top_logprobs: Sequence[TopTokens]
    ) -> list[ListedToken]:
        """List further tokens, with the alternatives of each if there are any."""
        listed = []
        for token_id, logprob, top in zip(token_ids, logprobs, top_logprobs or [[]] * len(token_ids), strict=True):
            alternatives = [(self._text(other), value) for other, value in top]
            listed.append(self._listed(self._text(token_id), logprob, alternatives))
            self._earlier = [*self._earlier, token_id][-CONTEXT:]
        return listed

    def _listed(self, text: str, logprob: float | None, top_logprobs: Sequence[tuple[str, float]]) -> ListedToken:
        token = ListedToken(text, self._offset, logprob, top_logprobs)
        self._offset += len(text)
        return token

    def _text(self, token_id: int) -> str:
        text = self._decode([token_id])
        if not text.endswith(INCOMPLETE):
            return text
        for begin in range(len(self._earlier) - 1, -1, -1):
            earlier = self._earlier[begin:]
            text = self._decode([*earlier, token_id])
            if not text.endswith(INCOMPLETE):
                while earlier and self._decode(earlier[-1:]).endswith(INCOMPLETE):
                    earlier.pop()  # its part of the character is in no text yet
                return text[len(self._decode(earlier)) :]
        return ""


def complete_characters(decode: Callable[[Sequence[int]], str], token_ids: Sequence[int]) -> str:
    """The text of a reply up to its last token that ends with a complete character."""
    text, n_tokens = decode(token_ids), len(token_ids)
    while text.endswith(INCOMPLETE):
        n_tokens -= 1
        text = decode(token_ids[:n_tokens])
    return text
