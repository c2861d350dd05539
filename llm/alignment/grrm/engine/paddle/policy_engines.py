"""Engines on the weights of a policy that is trained in parts: adapters beside frozen weights, or tensor shards."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from numpy.typing import NDArray
from paddle import Tensor

from grrm.engine.api import Completion, OnFinished, Request
from grrm.engine.paddle.decoder import Sampler
from grrm.engine.paddle.device_memory import free_memory_bytes
from grrm.engine.paddle.engine import PaddleEngine
from grrm.models.gathered_weights import GatheredCopy
from grrm.models.lora import merged
from grrm.parallel.tensor_ranks import gather_records, tensor_group


class MergedEngine(PaddleEngine):
    """Generates with LoRA adapters merged into the weights. During generation these take their memory twice."""

    def __init__(self, model: Any, **options: Any) -> None:
        super().__init__(model.model, **options)
        self._adapted = model

    def _generate(self, requests: Sequence[Request], on_finished: OnFinished) -> list[Completion]:
        """As the base's, with the current adapters."""
        with merged(self._adapted):
            return super()._generate(requests, on_finished)


class ReshardedEngine(PaddleEngine):
    """A `PaddleEngine` on a full, unsharded copy of the policy, which exists from `wake` to `sleep`.

    `wake`, `update_weights` and `sleep` are collectives: all tensor ranks must call them, with or without prompts.
    `generate` is local to a rank. Between `sleep` and `wake` only the policy's shards take memory.
    """

    def __init__(self, policy: Any, **options: Any) -> None:
        self._copy = GatheredCopy(policy)
        super().__init__(self._copy.model, **options)
        self._is_fresh = False
        self.sleep()

    def update_weights(self, version: int = 0) -> None:
        """All-gather the policy's current weights; a no-op right after `wake`."""
        if not self._is_fresh:
            self._copy.fill()
        self._is_fresh = True

    def wake(self) -> None:
        """All-gather the policy's weights."""
        self.update_weights()

    def sleep(self) -> None:
        """Release the memory of the full weights."""
        self._copy.clear()
        self._is_fresh = False

    def _generate(self, requests: Sequence[Request], on_finished: OnFinished) -> list[Completion]:
        self._is_fresh = False  # the policy may be trained before the next call
        return super()._generate(requests, on_finished)


class DividedEngine(PaddleEngine):
    """A `PaddleEngine` on this rank's shard of the policy: weights and KV cache stay sharded.

    `generate` is a collective of the tensor ranks. Each rank passes its own prompts, or none, and gets their
    completions; all prompts run in one batch. The rank with the least free memory determines the cache size.
    """

    is_collective = True

    def __init__(self, policy: Any, **options: Any) -> None:
        super().__init__(policy, **options)
        self._sample = as_first_rank(self._sample)
        self._free_bytes = 0

    def _generate(self, requests: Sequence[Request], on_finished: OnFinished) -> list[Completion]:
        """As the base's; an error in the prompts of one rank is raised on all of them."""
        parts = gather_records((requests, free_memory_bytes()))
        self._free_bytes = min(free_bytes for _, free_bytes in parts)
        first = sum(len(part) for part, _ in parts[: tensor_group().rank])
        own = range(first, first + len(requests))

        def on_own(number: int, completion: Completion) -> None:
            if number in own:
                on_finished(number - first, completion)

        completions = super()._generate(list(chain.from_iterable(part for part, _ in parts)), on_own)
        return completions[own.start : own.stop]

    def _cache_bytes(self) -> int:
        return self._max_cache_bytes or int(self._memory_fraction * self._free_bytes)


def as_first_rank(sample: Sampler) -> Sampler:
    """Broadcasts the tokens that the first tensor rank samples, or raises its exception on all of them.

    All ranks compute the same logits, but sums on a GPU are not deterministic. Ranks that sample different tokens, or
    continue where the first one stops, would deadlock.
    """

    def draw(*inputs: Any, **options: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        group, failure = tensor_group(), None
        sampled = np.full((2, len(inputs[0])), -1.0)  # float64, which holds every token id exactly
        if group.rank == 0:
            try:
                sampled = np.stack(sample(*inputs, **options))
            except FloatingPointError as error:
                failure = error
        shared = paddle.to_tensor(sampled)
        dist.broadcast(shared, src=group.ranks[0], group=group)
        tokens, logprobs = shared.numpy()
        if (tokens < 0).any():
            raise failure or FloatingPointError("logits of the first tensor rank are not finite: the model diverged")
        return tokens.astype(np.int64), logprobs

    return draw


class ParkedWeights:
    """The weights of a model that is not trained: on the device from `wake` to `sleep`, else in host memory.

    Initially they are on the host. On a CPU device and host are the same, so nothing is copied or freed.
    """

    def __init__(self, engine: PaddleEngine) -> None:
        self._engine = engine
        model: Any = engine.model
        self._weights: list[tuple[Any, Tensor]] = [(parameter, _on_host(parameter)) for parameter in model.parameters()]
        self._device = self._weights[0][0].place
        self._empty()

    def wake(self) -> None:
        """Copy the weights to the device."""
        for parameter, parked in self._weights:
            current = parked if parked.place == self._device else parked._copy_to(self._device, True)
            parameter.get_tensor()._share_data_with(current.get_tensor())
        self._engine.wake()

    def sleep(self) -> None:
        """Release the device memory."""
        self._engine.sleep()
        self._empty()

    def _empty(self) -> None:
        for parameter, _ in self._weights:
            parameter._clear_data()


def _on_host(parameter: Tensor) -> Tensor:
    if not parameter.place.is_cpu_place():
        return parameter.detach().cpu()
    parked = paddle.empty([0], parameter.dtype)  # `detach` returns the same tensor, which would be emptied too
    parked.get_tensor()._share_data_with(parameter.get_tensor())
    return parked
