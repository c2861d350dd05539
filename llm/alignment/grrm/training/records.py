"""Records of trainers on PaddleNLP's own loop: metrics.jsonl, throughput, progress and evaluations on the console."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

from grrm.parallel.data_ranks import DataRanks
from grrm.tracking.console import StepProgress
from grrm.tracking.metrics_log import MetricsLog


class MetersTokens:
    """Mixin over PaddleNLP's Trainer.

    The time runs from the first micro-batch behind a log line to the next line, without what is `untimed`:
    evaluations, checkpoints and rollouts.
    """

    _began: float | None = None

    def training_step(self, model: Any, inputs: Any, step_control: int = 0) -> Any:
        """As Trainer's, which gives `step_control`, the micro-batch in its step, to those that name it."""
        self._began = time.perf_counter() if self._began is None else self._began
        return super().training_step(model, inputs, step_control)  # type: ignore[misc]  # Trainer comes next

    @contextmanager
    def untimed(self) -> Iterator[None]:
        """Leave out the time inside."""
        began = time.perf_counter()
        yield
        if self._began is not None:
            self._began += time.perf_counter() - began

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        with self.untimed():
            super()._maybe_log_save_evaluate(*args, **kwargs)  # type: ignore[misc]  # Trainer comes next

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


class KeepsRecords(MetersTokens):
    """Mixin over PaddleNLP's Trainer; only the first rank has a `metrics_log` and a `progress`."""

    metrics_log: MetricsLog | None
    progress: StepProgress | None

    def log(self, logs: dict[str, float], **kwargs: Any) -> None:
        """Keep our own record of a training step beside the trackers'."""
        if "loss" in logs:
            logs.update(self.throughput())
            step = self.state.global_step  # type: ignore[attr-defined]  # Trainer comes next in the method order
            if self.metrics_log is not None:
                self.metrics_log.log(step, logs)
            if self.progress is not None:
                self.progress.update(step, loss=logs["loss"])
        super().log(logs, **kwargs)  # type: ignore[misc]

    def record_evaluation(self, metrics: dict[str, float], line: str, details: Mapping[str, Any] | None = None) -> None:
        """Record an evaluation: `details` in metrics.jsonl only, `line` on the console; callbacks are told."""
        trainer: Any = self
        step = trainer.state.global_step
        if self.metrics_log is not None:
            self.metrics_log.log(step, {**metrics, **(details or {})})
        if self.progress is not None:
            tqdm.write(f"{self.progress.description}: step {step}, {line}", file=sys.stderr)
        self.log(dict(metrics))
        trainer.control = trainer.callback_handler.on_evaluate(trainer.args, trainer.state, trainer.control, metrics)
