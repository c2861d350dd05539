"""The end of a run is logged too."""

from __future__ import annotations

from typing import Any

from paddlenlp.trainer import TrainerCallback
from paddlenlp.trainer.trainer_utils import IntervalStrategy


class LogLastStep(TrainerCallback):
    """Logs the last step although it is no multiple of `logging_steps`."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ask for a log line at the end."""
        if state.global_step >= state.max_steps and args.logging_strategy == IntervalStrategy.STEPS:
            control.should_log = True
