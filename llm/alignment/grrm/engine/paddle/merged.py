"""Rollouts of a policy with LoRA adapters, from merged weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from grrm.engine.api import Completion, SamplingParams
from grrm.engine.paddle.engine import PaddleEngine
from grrm.models.lora import merged


class MergedEngine(PaddleEngine):
    """Generates with merged weights. During generation they take their memory twice."""

    def __init__(self, model: Any, **options: Any) -> None:
        super().__init__(model.model, **options)
        self._adapted = model

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        stream_ids: Sequence[int] | None = None,
        on_finished: Callable[[int, Completion], None] | None = None,
    ) -> list[Completion]:
        """As the engine's `generate`, with the current adapters."""
        with merged(self._adapted):
            return super().generate(prompts, params, stream_ids, on_finished)
