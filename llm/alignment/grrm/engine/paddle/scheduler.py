"""Continuous batching: which requests run in which slots of the KV cache, and what is prefilled together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from grrm.engine.api import Completion, SamplingParams
from grrm.engine.paddle.plain_decoder import ROW_MULTIPLE, round_up
from grrm.engine.paddle.weights import DecoderWeights
from grrm.engine.sampling import draw_uniforms

_REFILL_FRACTION = 4  # of the slots: a group of samples waits for that many at most
_FREE = -1

# (logits_SV, params, uniforms_S, n_generated_S, seen_SV) -> tokens_S, logprobs_S: see grrm.engine.sampling
Sampler: TypeAlias = Callable[..., tuple[NDArray[np.int64], NDArray[np.float64]]]


class Decoder(Protocol):
    """A forward pass over a model's parameters, with a KV cache of its own kind."""

    @property
    def weights(self) -> DecoderWeights:
        """The model's parameters and sizes."""
        ...

    @property
    def computes_padding(self) -> bool:
        """True where free slots and the padding of short prompts take as long as tokens that are wanted."""
        ...

    def new_cache(self, n_slots: int, max_len: int) -> Any:
        """A cache for `n_slots` sequences of at most `max_len` tokens."""
        ...

    def cache_bytes(self, max_len: int) -> int:
        """Size of one slot of `max_len` positions over all layers."""
        ...

    def prefill(
        self,
        tokens_PT: NDArray[np.int64],
        lengths_P: NDArray[np.int64],
        cache: Any,
        slots_S: NDArray[np.int64],
        sources_S: NDArray[np.int64],
    ) -> Any:
        """Run right-padded prompts, put prompt `sources_S[i]` into slot `slots_S[i]`, return last-token logits_PV."""
        ...

    def decode(
        self, slots_S: NDArray[np.int64], tokens_S: NDArray[np.int64], positions_S: NDArray[np.int64], cache: Any
    ) -> Any:
        """Feed one token to each of `slots_S` at its position, return the next token's logits_SV."""
        ...


class Slots:
    """State of the sequences being generated, one row per slot; a slot is free, or runs a request."""

    def __init__(self, n_slots: int, params: SamplingParams, vocab_size: int) -> None:
        self._params = params
        self.requests_S = np.full(n_slots, _FREE)
        self.lengths_S = np.zeros(n_slots, dtype=np.int64)  # prompt + generated
        self.generated_S = np.zeros(n_slots, dtype=np.int64)
        self._limits_S = np.zeros(n_slots, dtype=np.int64)
        self._tokens_ST = np.zeros((n_slots, params.max_new_tokens), dtype=np.int64)
        self._logprobs_ST = np.zeros((n_slots, params.max_new_tokens))
        self._uniforms_ST = np.zeros((n_slots, params.max_new_tokens))
        self._seen_SV = np.zeros((n_slots, vocab_size), dtype=bool) if params.repetition_penalty != 1 else None

    def __len__(self) -> int:
        return len(self.requests_S)

    def free(self) -> NDArray[np.int64]:
        """Indices of the free slots."""
        return np.flatnonzero(self.requests_S == _FREE)

    def busy(self) -> NDArray[np.int64]:
        """Indices of the slots that run a request."""
        return np.flatnonzero(self.requests_S != _FREE)

    def admit(self, slot: int, request: int, prompt: Sequence[int], stream_id: int, limit: int) -> None:
        """Start `request` in a free slot; it ends after `limit` tokens at the latest."""
        self.requests_S[slot] = request
        self.lengths_S[slot] = len(prompt)
        self.generated_S[slot] = 0
        self._limits_S[slot] = limit
        self._uniforms_ST[slot, :limit] = draw_uniforms(self._params.seed, [stream_id], limit)[0]
        if self._seen_SV is not None:
            self._seen_SV[slot] = False
            self._seen_SV[slot, list(prompt)] = True

    def next_inputs(self, slots_S: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Last token and its position, for busy slots."""
        return self._tokens_ST[slots_S, self.generated_S[slots_S] - 1], self.lengths_S[slots_S] - 1

    def uniforms(self, slots_S: NDArray[np.int64]) -> NDArray[np.float64]:
        """The uniform number each slot's next token is drawn with."""
        return self._uniforms_ST[slots_S, self.generated_S[slots_S]]

    def seen(self, slots_S: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """(S, V) marks of the tokens in prompt and completion; None without a repetition penalty."""
        return None if self._seen_SV is None else self._seen_SV[slots_S]

    def record(
        self, slots_S: NDArray[np.int64], tokens_S: NDArray[np.int64], logprobs_S: NDArray[np.float64]
    ) -> list[tuple[int, Completion]]:
        """Append a token to each slot; slots that end become free and come back as (request, completion)."""
        at_S = self.generated_S[slots_S]
        self._tokens_ST[slots_S, at_S] = tokens_S
        self._logprobs_ST[slots_S, at_S] = logprobs_S
        self.generated_S[slots_S] += 1
        self.lengths_S[slots_S] += 1
        if self._seen_SV is not None:
            self._seen_SV[slots_S, tokens_S] = True
        stopped_S = np.isin(tokens_S, self._params.stop_token_ids)
        ended_S = stopped_S | (self.generated_S[slots_S] >= self._limits_S[slots_S])
        return [self._finish(slots_S[i], bool(stopped_S[i])) for i in np.flatnonzero(ended_S)]

    def _finish(self, slot: int, stopped: bool) -> tuple[int, Completion]:
        request, count = int(self.requests_S[slot]), self.generated_S[slot]
        self.requests_S[slot] = _FREE
        tokens = self._tokens_ST[slot, :count].tolist()
        logprobs = self._logprobs_ST[slot, :count].tolist() if self._params.logprobs else []
        return request, Completion(tokens, logprobs, "stop" if stopped else "length")

    def keep(self, slots_S: NDArray[np.int64]) -> None:
        """Drop all slots but these, which become slots 0, 1, 2, …"""
        for name, rows in vars(self).items():
            if isinstance(rows, np.ndarray):
                setattr(self, name, rows[slots_S])


def cache_length(prompts: Sequence[Sequence[int]], params: SamplingParams, max_positions: int) -> int:
    """Positions a slot needs for any of the prompts and its completion, rounded up."""
    return round_up(min(max(map(len, prompts)) + params.max_new_tokens, max_positions))


class Scheduler:
    """One `generate` call: requests wait, longest prompt first, are prefilled into free slots, and leave as they end.

    A request is the index of a prompt. All busy slots decode together, one token a step.
    """

    def __init__(
        self,
        decoder: Decoder,
        sample: Sampler,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        stream_ids: Sequence[int],
        n_slots: int,
        prefill_tokens: int,
    ) -> None:
        self._decoder, self._sample, self._prompts, self._params = decoder, sample, prompts, params
        self._stream_ids, self._prefill_tokens = stream_ids, prefill_tokens
        # The longest first: they take longest, and the end of the call should not wait for one that started last.
        # Equal prompts, which share a prefill, stay together.
        order = sorted(range(len(prompts)), key=lambda request: -len(prompts[request]))
        self._waiting = deque(list(group) for _, group in groupby(order, key=lambda request: list(prompts[request])))
        self._slots = Slots(n_slots, params, decoder.weights.vocab_size)
        self._cache = decoder.new_cache(n_slots, cache_length(prompts, params, decoder.weights.max_positions))

    def finished(self) -> Iterator[tuple[int, Completion]]:
        """(request, completion) in the order in which they end."""
        while self._waiting or len(self._slots.busy()):
            yield from self._refill()
            busy = self._slots.busy()
            if len(busy) == 0:
                continue
            if self._decoder.computes_padding:
                self._compact(busy)
                busy = self._slots.busy()
            logits_SV = self._decoder.decode(busy, *self._slots.next_inputs(busy), self._cache)
            yield from self._draw(busy, logits_SV)

    def _refill(self) -> Iterator[tuple[int, Completion]]:
        """Prefill waiting requests into free slots."""
        while True:  # a request that ends with its first token leaves its slot to another one
            free = self._slots.free()
            admitted = list(zip(self._entering(len(free)), free.tolist(), strict=False))
            if not admitted:
                return
            for request, slot in admitted:
                self._admit(request, slot)
            for batch in self._prefill_batches(admitted):
                yield from self._prefill(batch)

    def _entering(self, n_free: int) -> list[int]:
        """The waiting requests to admit now: samples of a prompt together, so that it is prefilled once.

        A group does not wait for more than a quarter of the slots. Where padding is computed all requests wait for that
        many, because a prefill of few rows takes as long as one of many.
        """
        entering: list[int] = []
        enough = -(-len(self._slots) // _REFILL_FRACTION)
        pads = self._decoder.computes_padding
        while self._waiting and not (pads and n_free < enough):
            group, room = self._waiting[0], n_free - len(entering)
            if room < (1 if pads else min(len(group), enough)):
                break
            entering += group[:room]
            self._waiting[0] = group[room:]
            if not self._waiting[0]:
                self._waiting.popleft()
        return entering

    def _admit(self, request: int, slot: int) -> None:
        prompt = self._prompts[request]
        limit = min(self._params.max_new_tokens, self._decoder.weights.max_positions - len(prompt))
        self._slots.admit(slot, request, prompt, self._stream_ids[request], limit)

    def _prefill_batches(self, admitted: list[tuple[int, int]]) -> Iterator[list[list[tuple[int, int]]]]:
        """Groups of equal prompts within the token budget; where padding is computed, of equal padded length.

        That length depends on the prompt alone.
        """
        by_length: dict[int, list[list[tuple[int, int]]]] = {}
        previous: Sequence[int] | None = None
        for request, slot in admitted:
            prompt = self._prompts[request]
            groups = by_length.setdefault(round_up(len(prompt)) if self._decoder.computes_padding else 0, [])
            if previous is None or list(prompt) != list(previous):
                groups.append([])
            groups[-1].append((request, slot))
            previous = prompt
        for groups in by_length.values():
            yield from self._within_budget(groups)

    def _within_budget(self, groups: list[list[tuple[int, int]]]) -> Iterator[list[list[tuple[int, int]]]]:
        batch: list[list[tuple[int, int]]] = []
        tokens = 0
        for group in groups:
            length = len(self._prompts[group[0][0]])
            length = round_up(length) if self._decoder.computes_padding else length
            if batch and tokens + length > self._prefill_tokens:
                yield batch
                batch, tokens = [], 0
            batch.append(group)
            tokens += length
        yield batch

    def _prefill(self, groups: list[list[tuple[int, int]]]) -> Iterator[tuple[int, Completion]]:
        prompts = [self._prompts[group[0][0]] for group in groups]
        tokens_PT = np.zeros((len(prompts), round_up(max(map(len, prompts)))), dtype=np.int64)
        for row, prompt in enumerate(prompts):
            tokens_PT[row, : len(prompt)] = prompt
        lengths_P = np.array([len(prompt) for prompt in prompts])
        slots_S = np.array([slot for group in groups for _, slot in group])
        sources_S = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        logits_PV = self._decoder.prefill(tokens_PT, lengths_P, self._cache, slots_S, sources_S)
        yield from self._draw(slots_S, logits_PV[sources_S])

    def _draw(self, slots_S: NDArray[np.int64], logits_SV: Any) -> list[tuple[int, Completion]]:
        slots = self._slots
        tokens_S, logprobs_S = self._sample(
            logits_SV, self._params, slots.uniforms(slots_S), slots.generated_S[slots_S], slots.seen(slots_S)
        )
        return slots.record(slots_S, tokens_S, logprobs_S)

    def _compact(self, busy: NDArray[np.int64]) -> None:
        """Halve the number of slots (repeatedly) once no request waits and half of them are free."""
        target = len(self._slots)
        while target // 2 >= max(len(busy), ROW_MULTIPLE):
            target = round_up(target // 2)
        if self._waiting or target == len(self._slots):
            return
        kept = np.concatenate([busy, self._slots.free()])[:target]
        self._slots.keep(kept)
        self._cache.keep(kept)
