"""Settings of run_reward.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grrm.config.key import OURS, Support, refused
from grrm.config.keys.data import DataConfig
from grrm.config.keys.optimization import EvaluationConfig, LoaderConfig
from grrm.config.keys.reward_model import GroupConfig, ValueHeadConfig
from grrm.config.stage_config import StageConfig

_LOADER = "this stage lays out its batches and evaluates in its own way; remove the key"
_UNDIVIDED = "a reward model is saved whole; remove the key"


class RewardModelConfig(ValueHeadConfig, GroupConfig, DataConfig, EvaluationConfig, StageConfig, LoaderConfig):
    """Every setting of the training of a reward model."""

    support: ClassVar[Mapping[str, Support]] = {
        **{name: refused(_LOADER) for name in LoaderConfig.model_fields},
        "remove_unused_columns": refused(_LOADER, False, None),
        "distributed_dataloader": refused(_LOADER, None),
        "lazy_data_processing": refused(_LOADER, None),
        "per_device_eval_batch_size": OURS,
        "dataloader_shuffle": OURS,
        "unified_checkpoint": refused(_UNDIVIDED, None),
        "unified_checkpoint_config": refused(_UNDIVIDED, None),
        "save_sharded_model": refused(_UNDIVIDED),
        "load_sharded_model": refused(_UNDIVIDED),
    }
