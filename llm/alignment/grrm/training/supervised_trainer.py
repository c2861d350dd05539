"""The base of the trainers of SFT, reward models and DPO: checkpoints, optimizer, records and the loss of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grrm.tracking.console import StepProgress
from grrm.tracking.metrics_log import MetricsLog
from grrm.training.callbacks import OptimizesTrainable, StopsAtDivergence
from grrm.training.checkpoints import MarksCheckpoints
from grrm.training.records import KeepsRecords
from grrm.training.step_normalised_loss import StepNormalisedLoss


class SupervisedTrainer(MarksCheckpoints, OptimizesTrainable, StopsAtDivergence, KeepsRecords, StepNormalisedLoss):
    """Mixin over PaddleNLP's Trainer for training on rows, and evaluation on the `held_out` ones.

    It logs to `metrics.jsonl` and a progress bar, which the first rank alone has.
    """

    def __init__(
        self,
        *,
        held_out: Sequence[Any],
        shuffle: bool,
        metrics_log: MetricsLog | None,
        progress: StepProgress | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.held_out, self.shuffle = held_out, shuffle
        self.metrics_log, self.progress = metrics_log, progress
