"""Its Trainer, with arguments and callbacks."""

from __future__ import annotations

from paddlenlp.trainer import Trainer, TrainerCallback, TrainingArguments
from paddlenlp.trainer.trainer_utils import IntervalStrategy

__all__ = ["IntervalStrategy", "Trainer", "TrainerCallback", "TrainingArguments"]
