"""Generation with a model whose layers tensor ranks divide among them: each rank puts it together and draws alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from grrm.engine.api import Completion, SamplingParams
from grrm.engine.paddle.engine import PaddleEngine
from grrm.models.whole_weights import WholeCopy


class ReshardedEngine(PaddleEngine):
    """A `PaddleEngine` on a copy of the policy that is whole while the engine is awake.

    `wake`, `update_weights` and `sleep` are collectives of the tensor ranks, so all of them call these, whether or not
    they have prompts; `generate` is each rank's own. Between `sleep` and `wake` only the policy's parts take memory.
    """

    def __init__(self, policy: Any, **options: Any) -> None:
        self._copy = WholeCopy(policy)
        super().__init__(self._copy.model, **options)
        self._is_fresh = False
        self.sleep()

    def update_weights(self) -> None:
        """Gather the policy's weights as they are now; nothing to do right after `wake`, which did."""
        if not self._is_fresh:
            self._copy.fill()
        self._is_fresh = True

    def wake(self) -> None:
        """Gather the policy's weights."""
        self.update_weights()

    def sleep(self) -> None:
        """Let go of the weights."""
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
