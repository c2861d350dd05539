"""Its Trainer, with arguments and callbacks, and its unified checkpoints, whose parts fit any layout of ranks."""

from __future__ import annotations

from paddlenlp.trainer import Trainer, TrainerCallback, TrainingArguments
from paddlenlp.trainer.plugins.timer import get_timers
from paddlenlp.trainer.trainer_utils import IntervalStrategy
from paddlenlp.trainer.unified_checkpoint import UnifiedCheckpointHandler
from paddlenlp.trainer.unified_checkpoint.load_local import (
    load_unified_checkpoint_locally,
    load_unified_optimizer_locally,
)
from paddlenlp.trainer.unified_checkpoint.utils import FP32_MASTER, get_expected_state_dict
from paddlenlp.transformers.model_utils import load_state_dict
from paddlenlp.utils.env import (
    SAFE_MASTER_WEIGHTS_INDEX_NAME,
    SAFE_OPTIMIZER_INDEX_NAME,
    SAFE_PEFT_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_INDEX_NAME,
)

__all__ = [
    "FP32_MASTER",
    "SAFE_MASTER_WEIGHTS_INDEX_NAME",
    "SAFE_OPTIMIZER_INDEX_NAME",
    "SAFE_PEFT_WEIGHTS_INDEX_NAME",
    "SAFE_WEIGHTS_INDEX_NAME",
    "IntervalStrategy",
    "Trainer",
    "TrainerCallback",
    "TrainingArguments",
    "UnifiedCheckpointHandler",
    "get_expected_state_dict",
    "get_timers",
    "load_state_dict",
    "load_unified_checkpoint_locally",
    "load_unified_optimizer_locally",
]
