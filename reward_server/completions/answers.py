"""The JSON of completions, whole and in chunks, in both of the protocol's forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from grrm.engine.api import TopTokens

from .replies import INCOMPLETE, Choice, Piece, Replies

ToText = Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True)
class Form:
    """The common fields of all messages about one request; with `wants_logprobs` choices carry log-probabilities.

    The end token is listed as well; its text is empty.
    """

    request_id: str
    created: int
    model: str
    decode: ToText
    wants_logprobs: bool

    def complete(self, choices: Sequence[Choice], replies: Replies) -> dict[str, Any]:
        """The answer that is not streamed."""
        listed = [self._choice(index, choice) for index, choice in enumerate(choices)]
        return self._envelope(self.kinds[0], listed) | {"usage": usage(replies)}

    def chunks(self, piece: Piece, *, is_first: bool) -> list[dict[str, Any]]:
        """The chunks that tell a piece; `is_first` for the first of its choice."""
        return [self._envelope(self.kinds[1], [choice]) for choice in self._deltas(piece, is_first)]

    def last_chunk(self, replies: Replies) -> dict[str, Any]:
        """The chunk that tells the numbers of tokens."""
        return self._envelope(self.kinds[1], []) | {"usage": usage(replies)}

    kinds = ("text_completion", "text_completion")

    def _envelope(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.request_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

    def _choice(self, index: int, choice: Choice) -> dict[str, Any]:
        logprobs = self._logprobs(choice) if self.wants_logprobs else None
        return {"index": index, "text": choice.text, "logprobs": logprobs, "finish_reason": choice.finish_reason}

    def _deltas(self, piece: Piece, is_first: bool) -> list[dict[str, Any]]:
        logprobs = self._logprobs(piece) if self.wants_logprobs else None
        return [{"index": piece.index, "text": piece.text, "logprobs": logprobs, "finish_reason": piece.finish_reason}]

    def _logprobs(self, part: Choice | Piece) -> dict[str, Any]:
        tokens = [self.decode([token_id]) for token_id in part.token_ids]
        offsets = list(accumulate(map(len, tokens), initial=0))[:-1]
        return {
            "tokens": tokens,
            "token_logprobs": part.logprobs,
            "top_logprobs": self._alternatives(part),
            "text_offset": offsets,
        }

    def _alternatives(self, part: Choice | Piece) -> list[dict[str, float] | None] | None:
        """The most probable tokens in the place of each; of those with the same text the most probable one."""
        return [None if top is None else self._by_text(top) for top in part.top_logprobs] or None

    def _by_text(self, top: TopTokens) -> dict[str, float]:
        return {self.decode([token_id]): logprob for token_id, logprob in top[::-1]}


class ChatForm(Form):
    """The chat form."""

    kinds = ("chat.completion", "chat.completion.chunk")

    def _choice(self, index: int, choice: Choice) -> dict[str, Any]:
        return {
            "index": index,
            "message": {"role": "assistant", "content": choice.text, "refusal": None},
            "logprobs": self._logprobs(choice) if self.wants_logprobs else None,
            "finish_reason": choice.finish_reason,
        }

    def _deltas(self, piece: Piece, is_first: bool) -> list[dict[str, Any]]:
        said: dict[str, Any] = {"role": "assistant", "content": ""} if is_first else {}
        if piece.text:
            said["content"] = piece.text
        logprobs = self._logprobs(piece) if self.wants_logprobs else None
        fields: dict[str, Any] = {"index": piece.index, "logprobs": logprobs}
        deltas = [fields | {"delta": said, "finish_reason": None}] if said or logprobs else []
        if piece.finish_reason is not None:
            deltas.append({"index": piece.index, "logprobs": None, "delta": {}, "finish_reason": piece.finish_reason})
        return deltas

    def _logprobs(self, part: Choice | Piece) -> dict[str, Any]:
        tops = part.top_logprobs or [[]] * len(part.token_ids)
        content = [
            self._listed(token_id, logprob) | {"top_logprobs": [self._listed(*pair) for pair in top or ()]}
            for token_id, logprob, top in zip(part.token_ids, part.logprobs, tops, strict=True)
        ]
        return {"content": content, "refusal": None}

    def _listed(self, token_id: int, logprob: float | None) -> dict[str, Any]:
        """A token; without bytes where it is a part of a character, whose own text says nothing."""
        text = self.decode([token_id])
        return {"token": text, "logprob": logprob, "bytes": None if INCOMPLETE in text else list(text.encode())}


def usage(replies: Replies) -> dict[str, int]:
    """The numbers of tokens that were read and written."""
    return {
        "prompt_tokens": replies.n_prompt_tokens,
        "completion_tokens": replies.n_tokens,
        "total_tokens": replies.n_prompt_tokens + replies.n_tokens,
    }
