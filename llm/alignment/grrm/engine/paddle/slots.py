"""State of the running sequences: generated tokens and sampling parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from grrm.engine.api import Completion, Request, SamplingParams
from grrm.engine.sampling import draw_uniforms

Generated = tuple[list[int], list[float]]  # tokens and their log-probabilities
NOTHING: Generated = ([], [])
_FREE = -1
_MANY_KINDS = 64
_WIDTH = 1024  # tokens that there is room for at first; it doubles as replies grow


class Slots:
    """State of the running sequences, one row per slot; a slot is free, or runs a request.

    Slots whose sampling parameters differ in seed and length only are of one kind, and are sampled together.
    """

    def __init__(self, n_slots: int, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self.requests_S = np.full(n_slots, _FREE)
        self.lengths_S = np.zeros(n_slots, dtype=np.int64)  # prompt + generated
        self.generated_S = np.zeros(n_slots, dtype=np.int64)
        self._limits_S = np.zeros(n_slots, dtype=np.int64)
        self._entries_S = np.zeros(n_slots, dtype=np.int64)  # a later one has a higher number
        self._n_entries = 0
        self._kinds_S = np.zeros(n_slots, dtype=np.int64)
        self._wants_logprobs_S = np.zeros(n_slots, dtype=bool)
        self._tokens_ST = np.zeros((n_slots, 0), dtype=np.int64)
        self._logprobs_ST = np.zeros((n_slots, 0))
        self._uniforms_ST = np.zeros((n_slots, 0))
        self._streams_S2 = np.zeros((n_slots, 2), dtype=object)  # seed and id of the random numbers
        self._seen_SV: NDArray[np.bool_] | None = None  # until a request has a repetition penalty
        self._kinds: dict[SamplingParams, tuple[int, SamplingParams]] = {}

    def __len__(self) -> int:
        return len(self.requests_S)

    def free(self) -> NDArray[np.int64]:
        """Indices of the free slots."""
        return np.flatnonzero(self.requests_S == _FREE)

    def busy(self) -> NDArray[np.int64]:
        """Indices of the slots that run a request."""
        return np.flatnonzero(self.requests_S != _FREE)

    def admit(self, slot: int, number: int, request: Request, limit: int, before: Generated) -> None:
        """Start request `number` in a free slot, or resume it after the tokens that it generated `before`.

        It ends after at most `limit` tokens.
        """
        tokens, logprobs = before
        done = len(tokens)
        self.requests_S[slot], self._limits_S[slot] = number, limit
        self._streams_S2[slot] = request.params.seed, request.stream_id
        width = min(limit, max(_WIDTH, done + 1))
        if width > self._tokens_ST.shape[1]:
            self._widen(width)
        else:
            self._draw_uniforms(slot)
        self.lengths_S[slot] = len(request.prompt) + done
        self.generated_S[slot] = done
        self._tokens_ST[slot, :done], self._logprobs_ST[slot, :done] = tokens, logprobs
        self._n_entries += 1
        self._entries_S[slot] = self._n_entries
        self._wants_logprobs_S[slot] = request.params.logprobs
        self._kinds_S[slot] = self._kind(request.params)
        if self._seen_SV is None and request.params.repetition_penalty != 1:
            self._seen_SV = np.zeros((len(self), self._vocab_size), dtype=bool)
        if self._seen_SV is not None:
            self._seen_SV[slot] = False
            self._seen_SV[slot, [*request.prompt, *tokens]] = True

    def preempt(self) -> tuple[int, Generated]:
        """Preempt the most recently admitted request; returns its number and its tokens, for resuming it later."""
        busy = self.busy()
        slot = busy[self._entries_S[busy].argmax()]
        number = int(self.requests_S[slot])
        generated = self.generated(number, 0)
        self.requests_S[slot] = _FREE
        return number, generated

    def release(self, number: int) -> None:
        """Free the slot of a cancelled request, if it has one."""
        self.requests_S[self.requests_S == number] = _FREE

    def next_inputs(self, slots_S: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Last token and its position, for busy slots."""
        return self._tokens_ST[slots_S, self.generated_S[slots_S] - 1], self.lengths_S[slots_S] - 1

    def final_lengths(self, slots_S: NDArray[np.int64]) -> NDArray[np.int64]:
        """Maximum length of prompt plus completion of busy slots."""
        return self.lengths_S[slots_S] - self.generated_S[slots_S] + self._limits_S[slots_S]

    def kinds(self, slots_S: NDArray[np.int64]) -> Iterator[tuple[SamplingParams, NDArray[np.int64]]]:
        """Sampling parameters, and the positions in `slots_S` of the slots that use them."""
        kinds_S = self._kinds_S[slots_S]
        by_number = dict(self._kinds.values())
        for number in np.unique(kinds_S).tolist():
            yield by_number[number], np.flatnonzero(kinds_S == number)

    def uniforms(self, slots_S: NDArray[np.int64]) -> NDArray[np.float64]:
        """The uniform random number for each slot's next token."""
        return self._uniforms_ST[slots_S, self.generated_S[slots_S]]

    def seen(self, slots_S: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """(S, V) mask of the tokens in prompt and completion; None without a repetition penalty."""
        return None if self._seen_SV is None else self._seen_SV[slots_S]

    def completions(self, slots_S: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """The tokens that each slot has generated."""
        return [self._tokens_ST[slot, : self.generated_S[slot]] for slot in slots_S]

    def record(
        self,
        slots_S: NDArray[np.int64],
        tokens_S: NDArray[np.int64],
        logprobs_S: NDArray[np.float64],
        stop_token_ids: Sequence[int],
    ) -> list[tuple[int, Completion]]:
        """Append a token to each slot; finished slots become free and are returned as (request, completion)."""
        at_S = self.generated_S[slots_S]
        self._tokens_ST[slots_S, at_S] = tokens_S
        self._logprobs_ST[slots_S, at_S] = logprobs_S
        self.generated_S[slots_S] += 1
        self.lengths_S[slots_S] += 1
        if self._seen_SV is not None:
            self._seen_SV[slots_S, tokens_S] = True
        stopped_S = np.isin(tokens_S, stop_token_ids)
        ended_S = stopped_S | (self.generated_S[slots_S] >= self._limits_S[slots_S])
        width = self._tokens_ST.shape[1]
        if (self.generated_S[slots_S[~ended_S]] >= width).any():
            self._widen(2 * width)
        return [self._finish(slots_S[i], bool(stopped_S[i])) for i in np.flatnonzero(ended_S)]

    def generated(self, number: int, start: int) -> Generated:
        """Tokens of a running request from the `start`-th on, and their log-probs; empty for a waiting one."""
        (slots,) = np.nonzero(self.requests_S == number)
        if not len(slots):
            return [], []
        slot = slots[0]
        part = slice(start, self.generated_S[slot])
        return self._tokens_ST[slot, part].tolist(), self._logprobs_ST[slot, part].tolist()

    def _finish(self, slot: int, stopped: bool) -> tuple[int, Completion]:
        number, count = int(self.requests_S[slot]), self.generated_S[slot]
        self.requests_S[slot] = _FREE
        tokens = self._tokens_ST[slot, :count].tolist()
        logprobs = self._logprobs_ST[slot, :count].tolist() if self._wants_logprobs_S[slot] else []
        return number, Completion(tokens, logprobs, "stop" if stopped else "length")

    def _kind(self, params: SamplingParams) -> int:
        length = max(1, params.min_new_tokens)
        key = replace(params, max_new_tokens=length, seed=0, logprobs=True, prompt_logprobs=False, constraint=None)
        if len(self._kinds) >= _MANY_KINDS and key not in self._kinds:
            used = set(self._kinds_S[self.busy()].tolist())
            self._kinds = {old: kind for old, kind in self._kinds.items() if kind[0] in used}
        number = 1 + max((number for number, _ in self._kinds.values()), default=-1)
        return self._kinds.setdefault(key, (number, params))[0]

    def _widen(self, width: int) -> None:
        more = width - self._tokens_ST.shape[1]
        for name in ("_tokens_ST", "_logprobs_ST", "_uniforms_ST"):
            setattr(self, name, np.pad(getattr(self, name), ((0, 0), (0, more))))
        for slot in self.busy():
            self._draw_uniforms(slot)

    def _draw_uniforms(self, slot: int) -> None:
        count = min(int(self._limits_S[slot]), self._uniforms_ST.shape[1])
        seed, stream_id = self._streams_S2[slot]
        self._uniforms_ST[slot, :count] = draw_uniforms(seed, stream_id, count)

    def keep(self, slots_S: NDArray[np.int64]) -> None:
        """Drop all slots but these, which become slots 0, 1, 2, …"""
        for name, rows in vars(self).items():
            if isinstance(rows, np.ndarray):
                setattr(self, name, rows[slots_S])
