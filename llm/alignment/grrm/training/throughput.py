"""Training speed of a stage, and the share of padding in its computations."""

from __future__ import annotations

import time
from typing import Any

from grrm.parallel.data_ranks import DataRanks


class MetersTokens:
    """Mixin over PaddleNLP's Trainer.

    The time runs from the first micro-batch behind a log line to the next line, so that evaluations, checkpoints and
    rollouts in between do not count.
    """

    _began: float | None = None

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """As Trainer's."""
        self._began = time.perf_counter() if self._began is None else self._began
        return super().training_step(*args, **kwargs)  # type: ignore[misc]  # Trainer comes next in the method order

    def throughput(self) -> dict[str, float]:
        """`train_tokens_a_second` of all data ranks, padding left out, and `frac_padding`, since the last call.

        A collective. Empty where nothing was trained on.
        """
        trainer: Any = self
        seconds = 0.0 if self._began is None else time.perf_counter() - self._began
        self._began = None
        layers = trainer.model.sublayers(include_self=True)
        used = next(layer.token_use for layer in layers if hasattr(layer, "token_use")).take()
        parts = DataRanks.of(trainer.args).gather((*used, seconds))
        n_tokens, n_laid_out = (sum(part[number] for part in parts) for number in (0, 1))
        longest = max(part[2] for part in parts)
        if not n_laid_out or not longest:
            return {}
        return {"train_tokens_a_second": n_tokens / longest, "frac_padding": 1.0 - n_tokens / n_laid_out}
