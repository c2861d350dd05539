"""Completions as they are drawn: from a request's prompts to the pieces of its choices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from grrm.engine.api import Completion, Request, SamplingParams, TopTokens
from grrm.engine.scheduler import BatchScheduler
from grrm.engine.shared import POLL_S
from grrm.engine.submission import Drawn, Submission

from .reply_text import ReplyText
from .wire import ApiError


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model and what turns texts into its tokens and back.

    `encode` takes a complete prompt, `decode` leaves special tokens out. `render` applies the chat template to turns;
    it raises ValueError for turns that the template refuses, and is None where there is no template.
    """

    name: str
    scheduler: BatchScheduler
    encode: Callable[[str], list[int]]
    decode: Callable[[Sequence[int]], str]
    stop_token_ids: tuple[int, ...]
    render: Callable[[Sequence[dict[str, str]]], str] | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """What is new of choice `index`: text, and the tokens drawn with their log-probabilities; at the end a reason.

    `top_logprobs` has the alternatives of each of these tokens, where they are asked for.
    """

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[float]
    finish_reason: str | None = None
    top_logprobs: list[TopTokens] = field(default_factory=list)


@dataclass(slots=True)
class Choice:
    """All of one choice so far."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str | None = None
    top_logprobs: list[TopTokens] = field(default_factory=list)

    def add(self, piece: Piece) -> None:
        """Append a piece."""
        self.text += piece.text
        self.token_ids += piece.token_ids
        self.logprobs += piece.logprobs
        self.top_logprobs += piece.top_logprobs
        self.finish_reason = piece.finish_reason


class Replies:
    """The choices of one request, under way: `n_choices` of every prompt, one after the other.

    Choice i of a prompt is drawn with the seed i and the stream `stream_id`, as the engine draws. Raises UserError for
    a prompt that the model cannot take.
    """

    def __init__(
        self,
        model: ServedModel,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        n_choices: int,
        stream_id: int,
        stops: Sequence[str],
        streams: bool,
    ) -> None:
        requests = [
            Request(prompt, replace(params, seed=choice), stream_id)
            for prompt in prompts
            for choice in range(n_choices)
        ]
        self.n_choices = len(requests)
        self.n_prompt_tokens = sum(map(len, prompts))
        self.n_tokens = 0
        self._model, self._stops = model, stops
        self._in_pieces = streams or (bool(stops) and not params.top_logprobs)  # only whole completions have these
        self._submission: Submission = model.scheduler.submit(requests, streams=self._in_pieces)

    def pieces(self, is_gone: Callable[[], bool], timeout_s: float) -> Iterator[Piece]:
        """What is new, choice by choice, until all have ended or the client is gone.

        Raises ApiError 504 where they have not within `timeout_s`, and what the engine raises.
        """
        ends = time.monotonic() + timeout_s
        texts = [ReplyText(self._model.decode, self._stops) for _ in range(self.n_choices)]
        try:
            while self._submission.open and not is_gone():
                if (left_s := ends - time.monotonic()) <= 0:
                    raise ApiError(504, f"the completion took longer than {timeout_s:g} s", code="timeout")
                event = self._submission.next(min(left_s, POLL_S))
                if event is None:
                    continue
                if isinstance(event, Drawn):
                    piece = self._piece(event.index, texts[event.index], event.token_ids, event.logprobs)
                else:
                    piece = self._last_piece(event.index, texts[event.index], event.completion)
                self.n_tokens += len(piece.token_ids)
                yield piece
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Give up what has not ended."""
        self._submission.cancel()

    def _piece(
        self, index: int, text: ReplyText, token_ids: list[int], logprobs: list[float], reason: str | None = None
    ) -> Piece:
        n_before = len(text.token_ids)
        new = text.add(token_ids, is_last=reason is not None)
        n_new = len(text.token_ids) - n_before
        if text.is_stopped:
            reason = "stop"
            self._submission.cancel(index)
        return Piece(index, new, token_ids[:n_new], logprobs[:n_new], reason)

    def _last_piece(self, index: int, text: ReplyText, completion: Completion) -> Piece:
        tokens, logprobs, reason = completion.token_ids, completion.logprobs, completion.finish_reason
        if not self._in_pieces and not self._stops:
            return Piece(index, self._model.decode(tokens), tokens, logprobs, reason, completion.top_logprobs)
        begin = len(text.token_ids)
        piece = self._piece(index, text, tokens[begin:], logprobs[begin:], reason)
        return replace(piece, top_logprobs=completion.top_logprobs[begin:][: len(piece.token_ids)])
