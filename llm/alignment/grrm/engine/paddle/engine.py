"""The Paddle engine: generates with a PaddleNLP model's own parameters, on CPU or GPU, by continuous batching."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grrm.engine import sampling
from grrm.engine.api import Completion, Engine, OnFinished, Request, SamplingParams, check_requests
from grrm.engine.paddle import gpu_sampling
from grrm.engine.paddle.cpu_decoder import CpuDecoder
from grrm.engine.paddle.decoder import Decoder, Sampler
from grrm.engine.paddle.device_memory import free_memory_bytes
from grrm.engine.paddle.gpu_decoder import GpuDecoder
from grrm.engine.paddle.plain_decoder import PlainDecoder, round_up
from grrm.engine.paddle.scheduler import Scheduler
from grrm.errors import UserError
from grrm.models import cpu_kernels
from grrm.models.checkpoint import load_causal_lm
from grrm.startup import freeze_gc

_GPU_STEP_TOKENS, _CPU_STEP_TOKENS = 4096, 1024  # enough for full throughput, in a fraction of a second


class PaddleEngine(Engine):
    """Generates with a Qwen2, Qwen3 or Llama model, reading its own parameters: a trainer's updates need no copy.

    KV cache: up to `max_num_seqs` sequences run concurrently, in up to `max_cache_bytes` of memory; None means
    `memory_fraction` of the memory that is free when `generate` begins. Blocks are allocated on demand; when they run
    out, the most recently admitted sequence is preempted and recomputed later. Plain operators reserve the maximum
    length for each sequence.

    Prefill: `prefill_tokens` bounds the prompt tokens, computed padding included, of one prefill. A longer prompt runs
    alone; the C++ kernels split it into chunks of that size.

    Back ends: C++ kernels for a float32 model on the CPU, if they can be built; Paddle's fused operators for a bfloat16
    or float16 model on a GPU; plain Paddle operators otherwise, or with `use_kernels` false. See `CpuDecoder` for
    `max_packed_bytes` and `precision`; low precision is slower on a processor without such dot products.

    Prompt and completion together have at most the model's `max_position_embeddings` tokens: a completion that reaches
    the limit ends with finish_reason "length".

    Determinism: the tokens of a sequence depend on its prompt, the params and its stream id only. Its logits are
    bitwise equal in any batch if BLAS computes each row independently of the number of rows (see `plain_decoder`);
    otherwise the last bits differ, on a GPU those of bfloat16.

    For this, small batches are padded to 16 rows (to `max_num_seqs` if that is less and plain Paddle operators are
    used), or to two with packed weights. The rows that go to one expert are not padded.
    """

    def __init__(
        self,
        model: Any,
        *,
        max_num_seqs: int = 256,
        max_cache_bytes: int | None = 4 << 30,
        memory_fraction: float = 0.7,
        prefill_tokens: int = 4096,
        use_kernels: bool = True,
        max_packed_bytes: int = 4 << 30,
        precision: str = "float32",
    ) -> None:
        if min(max_num_seqs, 1 if max_cache_bytes is None else max_cache_bytes, prefill_tokens) < 1:
            raise UserError("max_num_seqs, max_cache_bytes and prefill_tokens of the Paddle engine must be at least 1.")
        self.model = model
        self._decoder, self._sample = choose_decoder(
            model,
            use_kernels=use_kernels,
            precision=precision,
            max_packed_bytes=max_packed_bytes,
            pass_tokens=prefill_tokens,
        )
        self._max_num_seqs, self._max_cache_bytes = max_num_seqs, max_cache_bytes
        self._memory_fraction = memory_fraction
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
        return int(self._decoder.weights.max_positions) - 1

    @property
    def step_tokens(self) -> int:
        """Prompt tokens that may be prefilled between two decode steps."""
        on_gpu = self._decoder.weights.embedding_VH.place.is_gpu_place()
        return _GPU_STEP_TOKENS if on_gpu else _CPU_STEP_TOKENS

    def _generate(self, requests: Sequence[Request], on_finished: OnFinished) -> list[Completion]:
        """See `Engine.generate`; equal consecutive prompts are prefilled once.

        Raises FloatingPointError when the model's logits are not finite.
        """
        self.check(requests)
        if not requests:
            return []
        longest = max(len(request.prompt) + request.params.max_new_tokens for request in requests)
        run = self._scheduler(round_up(len(requests)), longest, shrinks=True)
        run.add(dict(enumerate(requests)))
        completions: dict[int, Completion] = {}
        while not run.is_idle:
            for number, completion in run.step():
                completions[number] = completion
                on_finished(number, completion)
        self.cache_use = run.cache_use()
        return [completions[number] for number in range(len(requests))]

    def open_session(self, max_len: int | None = None) -> Scheduler:
        """A batch that requests may join and leave, for prompt plus completion of at least `max_len` tokens.

        The limit is the model's context length, except with plain operators, which reserve the full length for each
        sequence. The weights must not change while the session is in use.
        """
        length = max_len if max_len and self._decoder.computes_padding else self._decoder.weights.max_positions
        return self._scheduler(self._max_num_seqs, length, shrinks=False)

    def check(self, requests: Sequence[Request]) -> None:
        """Raises UserError for prompts or stop tokens that this model cannot take."""
        weights = self._decoder.weights
        limit = f"model's max_position_embeddings of {weights.max_positions}"
        check_requests(requests, self.max_prompt_tokens, weights.vocab_size, limit)

    def _scheduler(self, n_slots: int, max_len: int, *, shrinks: bool) -> Scheduler:
        return Scheduler(
            self._decoder,
            self._sample,
            min(n_slots, self._max_num_seqs),
            max_len,
            self._prefill_tokens,
            max_bytes=self._cache_bytes(),
            shrinks=shrinks,
        )

    def _cache_bytes(self) -> int:
        if self._max_cache_bytes is not None:
            return self._max_cache_bytes
        return int(self._memory_fraction * free_memory_bytes())


def choose_decoder(
    model: Any, *, use_kernels: bool, precision: str, max_packed_bytes: int, pass_tokens: int
) -> tuple[Decoder, Sampler]:
    """The fastest decoder that runs `model` on the device of its parameters, and a sampler for its logits.

    Fused operators on a GPU, C++ kernels on the CPU, and plain Paddle operators for what neither runs, or without
    `use_kernels`. Raises UserError where `precision` is not "float32" and the C++ kernels do not run.
    """
    if use_kernels and precision == "float32" and GpuDecoder.unsupported_reason(model) is None:
        return GpuDecoder(model), counting(gpu_sampling.sample_tokens)
    in_cpp = use_kernels and cpu_kernels.available()
    sampler = counting(sampling.sample_tokens_cpp if in_cpp else sampling.sample_tokens)
    unsupported_reason = CpuDecoder.unsupported_reason(model, precision) if use_kernels else "they are switched off"
    if unsupported_reason is None:
        decoder = CpuDecoder(model, precision=precision, max_packed_bytes=max_packed_bytes, pass_tokens=pass_tokens)
        return decoder, sampler
    if precision != "float32":
        raise UserError(f"precision {precision} needs the C++ kernels, but {unsupported_reason}: use float32.")
    return PlainDecoder(model), sampler


def counting(sample: Sampler) -> Sampler:
    """`sample`, and NumPy for penalties by count, which are too rare for the samplers in C++ and on a GPU."""

    def draw(logits_SV: Any, params: SamplingParams, *state: Any, completions: Any) -> Any:
        if params.counts_tokens:
            uniforms_S, n_generated_S, seen_SV = state
            return sampling.sample_tokens(
                np.asarray(logits_SV), params, uniforms_S, n_generated_S, seen_SV, completions
            )
        return sample(logits_SV, params, *state)

    return draw
