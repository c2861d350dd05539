"""Continuous batching: which requests run in which slots of the KV cache, and what is prefilled together."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grrm.engine.api import UNFOLLOWED, CacheUse, Completion, Progress, PromptScores, Request, TopTokens
from grrm.engine.block_cache import BLOCK, BlockTables, n_blocks
from grrm.engine.paddle.constrained import Constraints
from grrm.engine.paddle.decoder import Decoder, Sampler
from grrm.engine.paddle.plain_decoder import ROW_MULTIPLE, round_up
from grrm.engine.paddle.prompt_scores import PromptScoring, top_tokens, unscored
from grrm.engine.paddle.slots import NOTHING, Generated, Slots

_REFILL_FRACTION = 4  # of the slots: a group of samples waits for that many at most


class Scheduler:
    """Continuous batching: requests are queued, prefilled into free cache slots, and leave when they finish.

    A request is identified by a number; prompt and completion have at most `max_len` tokens. All busy slots decode
    together, one token per step; requests may be added between steps. With `shrinks`, for a fixed set of requests, the
    number of slots is reduced as requests finish, if the decoder computes free slots too.

    The cache takes up to `max_bytes`. When its blocks run out, the most recently admitted request is preempted, moved
    to the front of the queue and recomputed later; its tokens do not change by this.
    """

    def __init__(
        self,
        decoder: Decoder,
        sample: Sampler,
        n_slots: int,
        max_len: int,
        prefill_tokens: int,
        *,
        max_bytes: int | None = None,
        shrinks: bool = False,
    ) -> None:
        self._decoder, self._sample = decoder, sample
        self._prefill_tokens, self._shrinks = prefill_tokens, shrinks
        self.max_len = min(max_len, decoder.weights.max_positions)
        self._requests: dict[int, Request] = {}
        self._waiting: deque[list[int]] = deque()
        self._preempted: dict[int, Generated] = {}  # tokens of preempted requests, by number
        self._tops: dict[int, list[TopTokens]] = {}  # of requests that want them, by number
        self._scores: dict[int, PromptScores] = {}  # likewise
        self._constraints = Constraints()
        self._cache = decoder.new_cache(n_slots, self.max_len, max_bytes)
        self._tables: BlockTables | None = self._cache.tables
        self._slots = Slots(self._cache.n_slots, decoder.weights.vocab_size)
        self.max_running = self.n_preempted = 0

    @property
    def n_free(self) -> int:
        """Slots for further requests; 0 while others wait for blocks, behind which further ones would wait."""
        if self._tables is not None and self._waiting:
            return 0
        return len(self._slots.free()) - sum(map(len, self._waiting))

    @property
    def is_idle(self) -> bool:
        """True if no request is waiting or running."""
        return not self._requests

    def cache_use(self) -> CacheUse:
        """Statistics of the cache over all requests so far."""
        if self._tables is None:
            n_sequences = self._cache.n_slots
            size = n_sequences * self._decoder.cache_bytes(self._cache.max_len)
        else:
            n_all, row = self._tables.n_owners.size, self._tables.blocks_SB.shape[1]
            n_sequences, size = n_all // row, n_all * self._decoder.cache_bytes(BLOCK)
        return CacheUse(size, n_sequences, self.max_running, self.n_preempted)

    def add(self, requests: Mapping[int, Request]) -> None:
        """Queue requests, by unique numbers; those with equal prompts, which share a prefill, stay together.

        Longest prompts come first: they take longest, so they should not start last.
        """
        order = sorted(requests, key=lambda number: -len(requests[number].prompt))
        groups = groupby(order, key=lambda number: list(requests[number].prompt))
        self._waiting.extend(list(group) for _, group in groups)
        self._requests.update(requests)
        self._constraints.add(requests)

    def cancel(self, number: int) -> None:
        """Cancel a waiting or running request; unknown and finished ones are ignored."""
        if self._requests.pop(number, None) is None:
            return
        self._slots.release(number)
        self._preempted.pop(number, None)
        self._tops.pop(number, None)
        self._scores.pop(number, None)
        self._constraints.drop(number)
        self._release_free_blocks()
        groups = ([waiting for waiting in group if waiting != number] for group in self._waiting)
        self._waiting = deque(group for group in groups if group)

    def generated(self, number: int, start: int = 0) -> Progress:
        """Generated tokens of a request from the `start`-th on."""
        tokens, logprobs = self._preempted.get(number, NOTHING)
        running = self._slots.generated(number, start)  # nothing where the request is preempted
        new = tokens[start:] + running[0], logprobs[start:] + running[1]
        return Progress(*new, self._tops.get(number, [])[start:], self._scores.get(number))

    def step(self, only: Set[int] | None = None) -> list[tuple[int, Completion]]:
        """Prefill waiting requests into free slots, then decode one token for all; returns the finished requests.

        `only` restricts decoding to these requests, unless they all wait for blocks, or padding is computed, which
        would overwrite the other caches. Raises FloatingPointError if the model's logits are not finite.
        """
        ended = list(self._refill())
        busy = self._slots.busy()
        if len(busy) and self._shrinks and self._decoder.computes_padding:
            self._compact(busy)
            busy = self._slots.busy()
        busy = self._with_blocks(busy)
        self.max_running = max(self.max_running, len(busy))
        if only is not None and not self._decoder.computes_padding:
            is_among_S = np.isin(self._slots.requests_S[busy], list(only))
            busy = busy[is_among_S] if is_among_S.any() else busy
        if len(busy):
            logits_SV = self._decoder.decode(busy, *self._slots.next_inputs(busy), self._cache)
            ended += self._draw(busy, logits_SV)
        for number, _ in ended:
            del self._requests[number]
        return [(number, self._with_tops(number, completion)) for number, completion in ended]

    def _with_tops(self, number: int, completion: Completion) -> Completion:
        if self._constraints.drop(number):
            completion = replace(completion, finish_reason=UNFOLLOWED)
        tops, scores = self._tops.pop(number, []), self._scores.pop(number, None)
        return replace(completion, top_logprobs=tops, prompt_scores=scores) if tops or scores else completion

    def _with_blocks(self, busy: NDArray[np.int64]) -> NDArray[np.int64]:
        """The busy slots that have blocks for their next token; the requests of the others are preempted."""
        while self._tables is not None and not self._tables.can_extend(busy, self._slots.next_inputs(busy)[1]):
            number, generated = self._slots.preempt()
            self._preempted[number] = generated
            self._waiting.appendleft([number])
            self.n_preempted += 1
            self._release_free_blocks()
            busy = self._slots.busy()
        return busy

    def _release_free_blocks(self) -> None:
        if self._tables is not None:
            for slot in self._slots.free().tolist():
                self._tables.release(slot)

    def _refill(self) -> Iterator[tuple[int, Completion]]:
        """Prefill waiting requests into free slots."""
        while True:  # a request that ends with its first token frees its slot for another one
            free = self._slots.free()
            admitted = list(zip(self._admissible(len(free)), free.tolist(), strict=False))
            if not admitted:
                return
            for number, slot in admitted:
                before = self._preempted.get(number, NOTHING)
                self._slots.admit(slot, number, self._requests[number], self._limit(number), before)
            for batch in self._prefill_batches(admitted):
                yield from self._prefill(batch)
            for number, _ in admitted:
                self._preempted.pop(number, None)

    def _admissible(self, n_free: int) -> list[int]:
        """The waiting requests to admit now: samples of a prompt together, so that it is prefilled once.

        A group waits for a quarter of the slots at most. If padding is computed, all requests wait for that many,
        because prefilling few rows takes as long as prefilling many.
        """
        admitted: list[int] = []
        enough, pads = -(-len(self._slots) // _REFILL_FRACTION), self._decoder.computes_padding
        n_busy, n_free_blocks = len(self._slots) - n_free, self._n_spare_blocks()
        while self._waiting and not (pads and n_free < enough):
            group = self._waiting[0]
            shared, own = self._blocks_of(group[0])
            is_first = not n_busy + len(admitted)  # there are always enough blocks for the first one
            n_fitting = min(n_free - len(admitted), max((n_free_blocks - shared) // own, is_first))
            if n_fitting < (1 if pads or is_first else min(len(group), enough)):
                break
            admitted += group[:n_fitting]
            n_free_blocks -= shared + own * len(group[:n_fitting])
            self._waiting[0] = group[n_fitting:]
            if not self._waiting[0]:
                self._waiting.popleft()
        return admitted

    def _n_spare_blocks(self) -> int:
        """Free blocks, minus one reserved for each busy slot that can still grow, to avoid early preemption."""
        if self._tables is None:
            return len(self._slots)
        busy = self._slots.busy()
        n_owned_S = (self._tables.blocks_SB[busy] >= 0).sum(1)
        return self._tables.n_free - int((-(-self._slots.final_lengths(busy) // BLOCK) > n_owned_S).sum())

    def _blocks_of(self, number: int) -> tuple[int, int]:
        """Blocks shared by the samples of a prompt, and blocks that each needs of its own to start and to grow."""
        if self._tables is None:
            return 0, 1
        length = len(self._tokens(number))
        shared = length // BLOCK
        return shared, min(2, n_blocks(len(self._requests[number].prompt) + self._limit(number)) - shared)

    def _tokens(self, number: int) -> list[int]:
        """Tokens to prefill for a request: its prompt and, after preemption, the tokens generated so far."""
        return [*self._requests[number].prompt, *self._preempted.get(number, NOTHING)[0]]

    def _limit(self, number: int) -> int:
        """Maximum number of tokens that a request may generate."""
        request = self._requests[number]
        return min(request.params.max_new_tokens, self.max_len - len(request.prompt))

    def _prefill_batches(self, admitted: list[tuple[int, int]]) -> Iterator[list[list[tuple[int, int]]]]:
        """Groups of equal prompts within the token budget; if padding is computed, of equal padded length.

        The padded length depends on the prompt only.
        """
        by_length: dict[int, list[list[tuple[int, int]]]] = {}
        previous: list[int] = []
        for request, slot in admitted:
            prompt = self._tokens(request)
            groups = by_length.setdefault(round_up(len(prompt)) if self._decoder.computes_padding else 0, [])
            if prompt != previous:
                groups.append([])
            groups[-1].append((request, slot))
            previous = prompt
        for groups in by_length.values():
            yield from self._within_budget(groups)

    def _within_budget(self, groups: list[list[tuple[int, int]]]) -> Iterator[list[list[tuple[int, int]]]]:
        batch: list[list[tuple[int, int]]] = []
        tokens = 0
        for group in groups:
            length = len(self._tokens(group[0][0]))
            length = round_up(length) if self._decoder.computes_padding else length
            alone = bool(unscored(group, self._requests, self._scores))  # whose positions all have logits
            if batch and (alone or tokens + length > self._prefill_tokens):
                yield batch
                batch, tokens = [], 0
            if alone:
                yield [group]
                continue
            batch.append(group)
            tokens += length
        if batch:
            yield batch

    def _prefill(self, groups: list[list[tuple[int, int]]]) -> Iterator[tuple[int, Completion]]:
        prompts = [self._tokens(group[0][0]) for group in groups]
        tokens_PT = np.zeros((len(prompts), round_up(max(map(len, prompts)))), dtype=np.int64)
        for row, prompt in enumerate(prompts):
            tokens_PT[row, : len(prompt)] = prompt
        lengths_P = np.array([len(prompt) for prompt in prompts])
        slots_S = np.array([slot for group in groups for _, slot in group])
        sources_S = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        scoring = PromptScoring(unscored(groups[0], self._requests, self._scores))
        on_logits = scoring.add if scoring.scores else None
        logits_PV = self._decoder.prefill(tokens_PT, lengths_P, self._cache, slots_S, sources_S, on_logits)
        self._scores.update(scoring.scores)
        yield from self._draw(slots_S, logits_PV[sources_S])

    def _draw(self, slots_S: NDArray[np.int64], logits_SV: Any) -> list[tuple[int, Completion]]:
        slots, ended = self._slots, []
        if self._constraints:
            logits_SV = self._constraints.mask(slots.requests_S[slots_S], logits_SV)
        for params, rows in slots.kinds(slots_S):
            part_S, logits = (slots_S, logits_SV) if len(rows) == len(slots_S) else (slots_S[rows], logits_SV[rows])
            seen_SV = slots.seen(part_S) if params.repetition_penalty != 1 else None
            completions = slots.completions(part_S) if params.counts_tokens else ()
            state = params, slots.uniforms(part_S), slots.generated_S[part_S], seen_SV
            sampled = self._sample(logits, *state, completions=completions)
            if params.top_logprobs:
                tops = top_tokens(logits, sampled[0], params)
                for number, top in zip(slots.requests_S[part_S].tolist(), tops, strict=True):
                    self._tops.setdefault(number, []).append(top)
            if self._constraints:
                self._constraints.advance(slots.requests_S[part_S], sampled[0])
            ended += slots.record(part_S, *sampled, params.stop_token_ids)
        if ended:
            self._release_free_blocks()
        return ended

    def _compact(self, busy: NDArray[np.int64]) -> None:
        """Halve the number of slots (repeatedly) once no request waits and half of them are free."""
        target = len(self._slots)
        while target // 2 >= max(len(busy), ROW_MULTIPLE):
            target = round_up(target // 2)
        if target < len(self._slots) and not self._waiting:
            slots = np.concatenate([busy, self._slots.free()])[:target]
            self._slots.keep(slots)
            self._cache.keep(slots)
