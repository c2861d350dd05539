"""Completions as they are drawn: from a request's prompts to the pieces of its choices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from grrm.engine.api import UNFOLLOWED, Completion, PromptScores, Request, SamplingParams, TopTokens
from grrm.engine.constraint import Vocabulary
from grrm.engine.scheduler import BatchScheduler
from grrm.engine.shared import POLL_S
from grrm.engine.submission import NewTokens, Submission

from ..problems import RequestProblem
from .listing import INCOMPLETE, ListedToken, TokenList, complete_characters


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model and what turns texts into its tokens and back.

    `encode` takes a complete prompt, `decode` leaves special tokens out and `decode_all` does not. `render` applies the
    chat template to turns; it raises ValueError for turns that the template refuses, and is None where there is no
    template. `vocabulary` is there if answers can be constrained.
    """

    name: str
    scheduler: BatchScheduler
    encode: Callable[[str], list[int]]
    decode: Callable[[Sequence[int]], str]
    decode_all: Callable[[Sequence[int]], str]
    stop_token_ids: tuple[int, ...]
    render: Callable[[Sequence[dict[str, str]]], str] | None = None
    vocabulary: Vocabulary | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """The new part of choice `index`: text, the number of tokens sampled, the same listed; at the end a reason.

    `listed` is empty where no log-probabilities are asked for.
    """

    index: int
    text: str
    n_tokens: int
    listed: Sequence[ListedToken] = ()
    finish_reason: str | None = None


@dataclass(slots=True)
class Choice:
    """All of one choice so far."""

    text: str = ""
    listed: list[ListedToken] = field(default_factory=list)
    finish_reason: str | None = None

    def add(self, piece: Piece) -> None:
        """Append a piece."""
        self.text += piece.text
        self.listed += piece.listed
        self.finish_reason = piece.finish_reason


class ReplyText:
    """Tokens in, pieces of text out.

    A piece holds whole characters, and nothing that could still turn out to begin a stop text. `text` is what was given
    out; a stop text, what follows it, and an incomplete character at the end never are. `token_ids` are those up to the
    one that completed the stop text.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stops: Sequence[str] = ()) -> None:
        self._decode, self._stops = decode, stops
        self._begin = self._read = 0  # tokens from `_begin` are decoded together, those before `_read` are text already
        self._held = ""  # text that may begin a stop
        self.token_ids: list[int] = []
        self.text, self.is_stopped = "", False

    def add(self, token_ids: Sequence[int], *, is_last: bool = False) -> str:
        """The text that these tokens add; with `is_last` also what may have begun a stop text."""
        pieces = []
        for token_id in token_ids:  # one by one: what comes after a stop does not count
            if self.is_stopped:
                break
            self.token_ids.append(token_id)
            pieces.append(self._give_out(self._new_text()))
        if is_last and not self.is_stopped:
            pieces.append(self._give_out("", is_last=True))
        return "".join(pieces)

    def _new_text(self) -> str:
        earlier_text = self._decode(self.token_ids[self._begin : self._read])
        text = self._decode(self.token_ids[self._begin :])
        if text.endswith(INCOMPLETE):
            return ""
        self._begin, self._read = self._read, len(self.token_ids)
        return text[len(earlier_text) :]

    def _give_out(self, new: str, is_last: bool = False) -> str:
        text = self._held + new
        positions = [position for stop in self._stops if (position := text.find(stop)) >= 0]
        if positions:
            self.is_stopped, text, self._held = True, text[: min(positions)], ""
        else:
            n_held = 0 if is_last else max((_overlap(text, stop) for stop in self._stops), default=0)
            text, self._held = text[: len(text) - n_held], text[len(text) - n_held :]
        self.text += text
        return text


def _overlap(text: str, stop: str) -> int:
    """The number of characters at the end of `text` that begin `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


class Replies:
    """The choices of one request, under way: `n_choices` of every prompt, one after the other.

    Choice i of a prompt is drawn with the seed i and the stream `stream_id`, as the engine draws. Choices begin with
    the text in `echo` of their prompt, if there are such, and with `is_dry` have nothing else. Raises UserError for a
    prompt that the model cannot take.
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
        echo: Sequence[str] = (),
        is_dry: bool = False,
    ) -> None:
        requests = [
            Request(prompt, replace(params, seed=choice), stream_id)
            for prompt in prompts
            for choice in range(n_choices)
        ]
        self.n_choices = len(requests)
        self.n_prompt_tokens = sum(map(len, prompts))
        self.n_tokens = 0
        self._model = model
        self._prompts, self._choices_each = prompts, n_choices
        self._echo, self._is_dry, self._is_listed = echo, is_dry, params.logprobs
        self._texts = [ReplyText(model.decode, stops) for _ in requests]
        self._lists = [TokenList(model.decode_all) for _ in requests]
        self._echoed = set[int]()  # choices whose prompt has been given out
        self._in_pieces = streams or bool(stops)  # a stop text ends a reply as soon as it is there
        self._submission: Submission = model.scheduler.submit(requests, streams=self._in_pieces)

    def pieces(self, is_gone: Callable[[], bool], timeout_s: float) -> Iterator[Piece]:
        """Yield the new parts, choice by choice, until all have ended or the client is gone.

        Raises RequestProblem 504 where they have not within `timeout_s`, and what the engine raises.
        """
        ends = time.monotonic() + timeout_s
        try:
            while self._submission.open and not is_gone():
                if (remaining_s := ends - time.monotonic()) <= 0:
                    raise RequestProblem(504, f"the completion took longer than {timeout_s:g} s", code="timeout")
                event = self._submission.next(min(remaining_s, POLL_S))
                if event is None:
                    continue
                latest = event.progress if isinstance(event, NewTokens) else event.completion
                echo, listed = self._prompt(event.index, latest.prompt_scores)
                if isinstance(latest, Completion):
                    piece = self._last_piece(event.index, latest)
                else:
                    piece = self._piece(event.index, latest.token_ids, latest.logprobs, None, latest.top_logprobs)
                piece = replace(piece, text=echo + piece.text, listed=[*listed, *piece.listed])
                self.n_tokens += piece.n_tokens
                yield piece
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Give up what has not ended."""
        self._submission.cancel()

    def _prompt(self, index: int, scores: PromptScores | None) -> tuple[str, list[ListedToken]]:
        """The text and tokens of a prompt that is echoed, before the first piece of its choice."""
        if not self._echo or index in self._echoed:
            return "", []
        self._echoed.add(index)
        row = index // self._choices_each
        return self._echo[row], [] if scores is None else self._lists[index].add_prompt(self._prompts[row], scores)

    def _last_piece(self, index: int, completion: Completion) -> Piece:
        if self._is_dry:
            return Piece(index, "", 0, (), "length")
        tokens, logprobs, reason = completion.token_ids, completion.logprobs, completion.finish_reason
        if reason == UNFOLLOWED:
            message = f"the JSON schema became too complex to follow after {len(tokens) - 1} tokens: make it simpler"
            raise RequestProblem(422, message, field="response_format")
        if not self._in_pieces:
            text = complete_characters(self._model.decode, tokens)
            return Piece(index, text, len(tokens), self._list(index, tokens, logprobs, completion.top_logprobs), reason)
        begin = len(self._texts[index].token_ids)
        return self._piece(index, tokens[begin:], logprobs[begin:], reason, completion.top_logprobs[begin:])

    def _piece(
        self,
        index: int,
        token_ids: list[int],
        logprobs: Sequence[float],
        reason: str | None = None,
        top_logprobs: Sequence[TopTokens] = (),
    ) -> Piece:
        text = self._texts[index]
        n_before = len(text.token_ids)
        new = text.add(token_ids, is_last=reason is not None)
        n_new = len(text.token_ids) - n_before
        if text.is_stopped:
            reason = "stop"
            self._submission.cancel(index)
        listed = self._list(index, token_ids[:n_new], logprobs[:n_new], top_logprobs[:n_new])
        return Piece(index, new, n_new, listed, reason)

    def _list(
        self, index: int, token_ids: Sequence[int], logprobs: Sequence[float], top_logprobs: Sequence[TopTokens]
    ) -> Sequence[ListedToken]:
        return self._lists[index].add(token_ids, logprobs, top_logprobs) if self._is_listed else ()
