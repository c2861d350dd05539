"""Generation with a tensor-parallel model: each rank all-gathers the full weights and samples on its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from grrm.engine.api import Completion, SamplingParams
from grrm.engine.paddle.engine import PaddleEngine
from grrm.models.whole_weights import WholeCopy


class ReshardedEngine(PaddleEngine):
    """A `PaddleEngine` on a full, unsharded copy of the policy, which exists from `wake` to `sleep`.

    `wake`, `update_weights` and `sleep` are collectives: all tensor ranks must call them, with or without prompts.
    `generate` is local to a rank. Between `sleep` and `wake` only the policy's shards take memory.
    """

    def __init__(self, policy: Any, **options: Any) -> None:
        self._copy = WholeCopy(policy)
        super().__init__(self._copy.model, **options)
        self._is_fresh = False
        self.sleep()

    def update_weights(self) -> None:
        """All-gather the policy's current weights; a no-op right after `wake`."""
        if not self._is_fresh:
            self._copy.fill()
        self._is_fresh = True

    def wake(self) -> None:
        """All-gather the policy's weights."""
        self.update_weights()

    def sleep(self) -> None:
        """Release the memory of the full weights."""
        super().sleep()
        self._copy.clear()
        self._is_fresh = False

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        stream_ids: Sequence[int] | None = None,
        on_finished: Callable[[int, Completion], None] | None = None,
    ) -> list[Completion]:
        """See `PaddleEngine.generate`."""
        self._is_fresh = False  # the policy may be trained before the next call
        return super().generate(prompts, params, stream_ids, on_finished)
