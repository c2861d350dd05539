"""The JSON of completions, whole and in chunks, in both of the protocol's forms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .listing import ListedToken
from .replies import Choice, Piece, Replies


@dataclass(frozen=True, slots=True)
class Form:
    """The common fields of all messages about one request; with `wants_logprobs` choices carry log-probabilities.

    The end token is listed as well, with its text.
    """

    request_id: str
    created: int
    model: str
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
        return {
            "tokens": [token.text for token in part.listed],
            "token_logprobs": [token.logprob for token in part.listed],
            "top_logprobs": [self._by_text(token) for token in part.listed],
            "text_offset": [token.offset for token in part.listed],
        }

    def _by_text(self, token: ListedToken) -> dict[str, float] | None:
        """A token and its alternatives; of those with the same text the most probable one."""
        if token.logprob is None:
            return None
        best = {token.text: token.logprob}
        for text, logprob in token.top_logprobs:
            best[text] = max(logprob, best.get(text, logprob))
        return best


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
        content = [
            _listed(token.text, token.logprob) | {"top_logprobs": [_listed(*pair) for pair in token.top_logprobs]}
            for token in part.listed
        ]
        return {"content": content, "refusal": None}


def _listed(text: str, logprob: float | None) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def usage(replies: Replies) -> dict[str, int]:
    """The numbers of tokens that were read and written."""
    return {
        "prompt_tokens": replies.n_prompt_tokens,
        "completion_tokens": replies.n_tokens,
        "total_tokens": replies.n_prompt_tokens + replies.n_tokens,
    }
