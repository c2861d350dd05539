"""Records of trainers on PaddleNLP's own loop: metrics.jsonl, and progress and evaluations on the console."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tqdm import tqdm

from grrm.tracking.console import StepProgress
from grrm.tracking.metrics_log import MetricsLog
from grrm.training.throughput import MetersTokens


class KeepsRecords(MetersTokens):
    """Mixin over PaddleNLP's Trainer; only the first rank has a `metrics_log` and a `progress`."""

    metrics_log: MetricsLog | None = None
    progress: StepProgress | None = None

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
