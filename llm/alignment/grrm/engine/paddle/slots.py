"""Who sits where: the state of the sequences being generated, one row per slot of the KV cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from grrm.engine.api import Completion, SamplingParams
from grrm.engine.sampling import draw_uniforms

_FREE = -1


class Slots:
    """Rows of per-sequence state; a row is free, or runs the request whose index is in `requests`."""

    def __init__(self, n_slots: int, params: SamplingParams, vocab_size: int) -> None:
        self._params = params
        self.requests = np.full(n_slots, _FREE)
        self.lengths = np.zeros(n_slots, dtype=np.int64)  # prompt + generated
        self.generated = np.zeros(n_slots, dtype=np.int64)
        self._limits = np.zeros(n_slots, dtype=np.int64)
        self._tokens = np.zeros((n_slots, params.max_new_tokens), dtype=np.int64)
        self._logprobs = np.zeros((n_slots, params.max_new_tokens))
        self._uniforms = np.zeros((n_slots, params.max_new_tokens))
        self._seen = np.zeros((n_slots, vocab_size), dtype=bool) if params.repetition_penalty != 1 else None

    def __len__(self) -> int:
        return len(self.requests)

    def free(self) -> NDArray[np.int64]:
        """Indices of the free slots."""
        return np.flatnonzero(self.requests == _FREE)

    def busy(self) -> NDArray[np.int64]:
        """Indices of the slots that run a request."""
        return np.flatnonzero(self.requests != _FREE)

    def admit(self, slot: int, request: int, prompt: Sequence[int], stream_id: int, limit: int) -> None:
        """Start `request` in a free slot; it ends after `limit` tokens at the latest."""
        self.requests[slot] = request
        self.lengths[slot] = len(prompt)
        self.generated[slot] = 0
        self._limits[slot] = limit
        self._uniforms[slot, :limit] = draw_uniforms(self._params.seed, [stream_id], limit)[0]
        if self._seen is not None:
            self._seen[slot] = False
            self._seen[slot, list(prompt)] = True

    def next_inputs(self, slots_N: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Last token and its position, for busy slots."""
        return self._tokens[slots_N, self.generated[slots_N] - 1], self.lengths[slots_N] - 1

    def uniforms(self, slots_N: NDArray[np.int64]) -> NDArray[np.float64]:
        """The number each slot's next token is drawn with."""
        return self._uniforms[slots_N, self.generated[slots_N]]

    def seen(self, slots_N: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """(N, V) marks of the tokens in prompt and completion; None without a repetition penalty."""
        return None if self._seen is None else self._seen[slots_N]

    def record(
        self, slots_N: NDArray[np.int64], tokens_N: NDArray[np.int64], logprobs_N: NDArray[np.float64]
    ) -> list[tuple[int, Completion]]:
        """Append a token to each slot; slots that end become free and come back as (request, completion)."""
        at_N = self.generated[slots_N]
        self._tokens[slots_N, at_N] = tokens_N
        self._logprobs[slots_N, at_N] = logprobs_N
        self.generated[slots_N] += 1
        self.lengths[slots_N] += 1
        if self._seen is not None:
            self._seen[slots_N, tokens_N] = True
        stopped_N = np.isin(tokens_N, self._params.stop_token_ids)
        ended_N = stopped_N | (self.generated[slots_N] >= self._limits[slots_N])
        return [self._finish(slots_N[i], bool(stopped_N[i])) for i in np.flatnonzero(ended_N)]

    def _finish(self, slot: int, stopped: bool) -> tuple[int, Completion]:
        request, count = int(self.requests[slot]), self.generated[slot]
        self.requests[slot] = _FREE
        tokens = self._tokens[slot, :count].tolist()
        logprobs = self._logprobs[slot, :count].tolist() if self._params.logprobs else []
        return request, Completion(tokens, logprobs, "stop" if stopped else "length")

    def keep(self, slots_N: NDArray[np.int64]) -> None:
        """Drop all slots but these, which become slots 0..N-1."""
        for name, rows in vars(self).items():
            if isinstance(rows, np.ndarray):
                setattr(self, name, rows[slots_N])
