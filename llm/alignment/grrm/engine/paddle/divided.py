"""Tensor-parallel generation: all tensor ranks decode one batch together, each with its shard of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from numpy.typing import NDArray

from grrm.engine.api import Completion, SamplingParams, streams_of
from grrm.engine.paddle.decoder import Sampler
from grrm.engine.paddle.device_memory import free_memory_bytes
from grrm.engine.paddle.engine import PaddleEngine
from grrm.parallel.tensor_ranks import gather_records, tensor_group


class DividedEngine(PaddleEngine):
    """A `PaddleEngine` on this rank's shard of the policy: weights and KV cache stay sharded.

    `generate` is a collective of the tensor ranks. Each rank passes its own prompts, or none, and gets their
    completions; all prompts run in one batch. The rank with the least free memory determines the cache size.
    """

    draws_together = True

    def __init__(self, policy: Any, **options: Any) -> None:
        super().__init__(policy, **options)
        self._sample = as_first_rank(self._sample)
        self._free_bytes = 0

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        stream_ids: Sequence[int] | None = None,
        on_finished: Callable[[int, Completion], None] | None = None,
    ) -> list[Completion]:
        """See `PaddleEngine.generate`; an error in the prompts of one rank is raised on all of them."""
        wanted = [list(prompt) for prompt in prompts], streams_of(prompts, stream_ids), free_memory_bytes()
        parts = gather_records(wanted)
        self._free_bytes = min(free_bytes for _, _, free_bytes in parts)
        first = sum(len(part[0]) for part in parts[: tensor_group().rank])

        def on_own(number: int, completion: Completion) -> None:
            if on_finished is not None and first <= number < first + len(prompts):
                on_finished(number - first, completion)

        everyones = list(chain.from_iterable(part[0] for part in parts))
        streams = list(chain.from_iterable(part[1] for part in parts))
        return super().generate(everyones, params, streams, on_own)[first : first + len(prompts)]

    def _cache_bytes(self) -> int:
        return self._max_cache_bytes or int(self._memory_fraction * self._free_bytes)


def as_first_rank(sample: Sampler) -> Sampler:
    """Broadcasts the tokens that the first tensor rank samples, or raises its exception on all of them.

    All ranks compute the same logits, but sums on a GPU are not deterministic. Ranks that sample different tokens, or
    continue where the first one stops, would deadlock.
    """

    def draw(*given: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        group, failure = tensor_group(), None
        drawn = np.full((2, len(given[0])), -1.0)  # float64, which holds every token id exactly
        if group.rank == 0:
            try:
                drawn = np.stack(sample(*given))
            except FloatingPointError as error:
                failure = error
        shared = paddle.to_tensor(drawn)
        dist.broadcast(shared, src=group.ranks[0], group=group)
        tokens, logprobs = shared.numpy()
        if (tokens < 0).any():
            raise failure or FloatingPointError("logits of the first tensor rank are not finite: the model diverged")
        return tokens.astype(np.int64), logprobs

    return draw
