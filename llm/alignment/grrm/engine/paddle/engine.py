"""The Paddle back end: continuous batching over the slots of a preallocated KV cache."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grrm.engine.api import Completion, SamplingParams
from grrm.engine.paddle.back_end import AnyDecoder, Sampler, choose_back_end
from grrm.engine.paddle.plain_decoder import ROW_MULTIPLE, round_up
from grrm.engine.paddle.slots import Slots
from grrm.engine.prompt_checks import check_prompts, streams_of
from grrm.errors import UserError
from grrm.models.checkpoint import load_causal_lm
from grrm.startup import freeze_gc

_REFILL_FRACTION = 4  # of the slots: as many are waited for at most before others enter


class PaddleEngine:
    """Generates with a PaddleNLP Qwen2 or Llama model, sharing its parameters with whoever trains it.

    `max_num_seqs` sequences run at a time, fewer where their KV cache would exceed `max_cache_bytes` (but at least
    one); `prefill_tokens` bounds the prompt tokens, padding included where it is computed, in one prefill; a longer
    prompt runs alone, and in the C++ kernels in parts of that many tokens.
    A float32 model on the CPU runs in C++ kernels where they can be built, a bfloat16 or float16 model on a GPU in
    Paddle's fused operators, unless `use_kernels` is false; any other runs in plain Paddle operators. The C++ kernels
    lay weights of up to `max_packed_bytes` out for their products, in as much memory once more, when they differ from
    those of the last `generate`.
    With the `precision` "bfloat16" the kernels round the factors of matrix products to it, with "int8" weights to eight
    bits; sums, attention, norms and sampling stay float32, and so do the model's own weights. A processor without
    dot products of bfloat16, or for "int8" of bytes, is slower so.

    A prompt and its completion together hold at most the model's `max_position_embeddings` tokens: a completion
    that reaches the limit ends with finish_reason "length".

    What a sequence draws depends on its prompt, the params and its stream id only. Its logits carry the same bits
    in any batch as far as BLAS computes a GEMM row independently of the number of rows (see decoder.py); where it
    does not, they differ in the last bits, on a GPU in those of bfloat16. The price: few sequences still run as 16
    rows (as `max_num_seqs` where that is less and plain Paddle operators are used), or as two with weights that were
    laid out.
    """

    def __init__(
        self,
        model: Any,
        *,
        max_num_seqs: int = 256,
        max_cache_bytes: int = 4 << 30,
        prefill_tokens: int = 4096,
        use_kernels: bool = True,
        max_packed_bytes: int = 4 << 30,
        precision: str = "float32",
    ) -> None:
        if min(max_num_seqs, max_cache_bytes, prefill_tokens) < 1:
            raise UserError("max_num_seqs, max_cache_bytes and prefill_tokens of the Paddle engine must be at least 1.")
        self.model = model
        self._decoder, self._sample = choose_back_end(
            model,
            use_kernels=use_kernels,
            precision=precision,
            max_packed_bytes=max_packed_bytes,
            pass_tokens=prefill_tokens,
        )
        self._max_num_seqs, self._max_cache_bytes = max_num_seqs, max_cache_bytes
        self._prefill_tokens = prefill_tokens

    @classmethod
    def from_pretrained(cls, directory: str | Path, *, dtype: str = "float32", **options: Any) -> PaddleEngine:
        """Load the model in `directory` (PaddleNLP's or Hugging Face's format); `options` as for the constructor.

        Raises UserError when there is no readable model.
        """
        engine = cls(load_causal_lm(directory, dtype=dtype), **options)
        freeze_gc()
        return engine

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt that leaves room for one token."""
        return int(self._decoder.weights.max_positions) - 1

    def update_weights(self) -> None:
        """Nothing to do: the decoder reads the model's own parameters."""

    def sleep(self) -> None:
        """Nothing to release: the KV cache lives only while `generate` runs, the weights are the model's.

        Weights that were laid out for the kernels stay, in memory that the next `generate` fills anew.
        """

    def wake(self) -> None:
        """Nothing to undo."""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        stream_ids: Sequence[int] | None = None,
        on_finished: Callable[[int, Completion], None] | None = None,
    ) -> list[Completion]:
        """One completion per prompt, order kept; `stream_ids` default to 0, 1, 2, …

        Equal consecutive prompts are prefilled once. `on_finished(i, completion)` is called as completion i ends.
        Raises UserError for an empty prompt, one that leaves no room for a token, or a token id outside the
        vocabulary; ValueError when `stream_ids` and `prompts` differ in length; FloatingPointError when the
        model's logits are not finite.
        """
        streams = streams_of(prompts, stream_ids)
        weights = self._decoder.weights
        limit = f"model's max_position_embeddings of {weights.max_positions}"
        check_prompts(prompts, params, self.max_prompt_tokens, weights.vocab_size, limit)
        if not prompts:
            return []
        n_slots = self._n_slots(prompts, params)
        run = Scheduler(self._decoder, self._sample, prompts, params, streams, n_slots, self._prefill_tokens)
        completions: dict[int, Completion] = {}
        for request, completion in run.finished():
            completions[request] = completion
            if on_finished is not None:
                on_finished(request, completion)
        return [completions[request] for request in range(len(prompts))]

    def _n_slots(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> int:
        longest = _cache_length(prompts, params, self._decoder.weights.max_positions)
        affordable = max(1, self._max_cache_bytes // self._decoder.cache_bytes(longest))
        return min(round_up(len(prompts)), self._max_num_seqs, affordable)


def _cache_length(prompts: Sequence[Sequence[int]], params: SamplingParams, max_positions: int) -> int:
    """Positions a slot needs; the last token drawn is never fed, but rounding up makes that moot."""
    return round_up(min(max(map(len, prompts)) + params.max_new_tokens, max_positions))


class Scheduler:
    """One `generate` call: requests wait, enter free slots by length, and leave when they end."""

    def __init__(
        self,
        decoder: AnyDecoder,
        sample: Sampler,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        stream_ids: Sequence[int],
        n_slots: int,
        prefill_tokens: int,
    ) -> None:
        self._decoder, self._sample, self._prompts, self._params = decoder, sample, prompts, params
        self._stream_ids, self._prefill_tokens = stream_ids, prefill_tokens
        # The longest first: they take longest, and nobody shall wait for one that started last. Equal prompts, which
        # share a prefill, stay together.
        order = sorted(range(len(prompts)), key=lambda request: -len(prompts[request]))
        self._waiting = deque(list(group) for _, group in groupby(order, key=lambda request: list(prompts[request])))
        self._slots = Slots(n_slots, params, decoder.weights.vocab_size)
        max_len = _cache_length(prompts, params, decoder.weights.max_positions)
        self._cache = decoder.new_cache(n_slots, max_len)

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
            logits_NV = self._decoder.decode(busy, *self._slots.next_inputs(busy), self._cache)
            yield from self._draw(busy, logits_NV)

    def _refill(self) -> Iterator[tuple[int, Completion]]:
        while True:  # who ends with the first token leaves a slot for somebody else
            free = self._slots.free()
            admitted = list(zip(self._entering(len(free)), free.tolist(), strict=False))
            if not admitted:
                return
            for request, slot in admitted:
                self._admit(request, slot)
            for batch in self._prefill_batches(admitted):
                yield from self._prefill(batch)

    def _entering(self, n_free: int) -> list[int]:
        """The waiting requests whose turn it is: samples of a prompt together, so that it runs once.

        A group does not wait for more than a quarter of the slots; where padding is computed everybody waits for that
        many, because few rows take as long as many.
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
        tokens_RT = np.zeros((len(prompts), round_up(max(map(len, prompts)))), dtype=np.int64)
        for row, prompt in enumerate(prompts):
            tokens_RT[row, : len(prompt)] = prompt
        lengths_R = np.array([len(prompt) for prompt in prompts])
        slots_N = np.array([slot for group in groups for _, slot in group])
        sources_N = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        logits_RV = self._decoder.prefill(tokens_RT, lengths_R, self._cache, slots_N, sources_N)
        yield from self._draw(slots_N, logits_RV[sources_N])

    def _draw(self, slots_N: NDArray[np.int64], logits_NV: Any) -> list[tuple[int, Completion]]:
        slots = self._slots
        tokens_N, logprobs_N = self._sample(
            logits_NV, self._params, slots.uniforms(slots_N), slots.generated[slots_N], slots.seen(slots_N)
        )
        return slots.record(slots_N, tokens_N, logprobs_N)

    def _compact(self, busy: NDArray[np.int64]) -> None:
        """Halve the slot array (repeatedly) once nobody waits and half of it is free."""
        target = len(self._slots)
        while target // 2 >= max(len(busy), ROW_MULTIPLE):
            target = round_up(target // 2)
        if self._waiting or target == len(self._slots):
            return
        kept = np.concatenate([busy, self._slots.free()])[:target]
        self._slots.keep(kept)
        self._cache.keep(kept)
