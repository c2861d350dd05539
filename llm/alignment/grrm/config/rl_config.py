"""Settings of run_rl.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grrm.config.key import Support, refused
from grrm.config.keys.data import DataConfig, FreezingConfig, RowKeysConfig
from grrm.config.keys.objective import CriticConfig, ObjectiveConfig, StoppingConfig
from grrm.config.keys.optimization import EvaluationConfig, LoaderConfig
from grrm.config.keys.reward import RecordConfig, RewardConfig, RewardShapingConfig
from grrm.config.keys.rollout import BatchConfig, PolicyConfig, RolloutConfig, RolloutServersConfig
from grrm.config.stage_config import StageConfig

_LOADER = "the RL trainer has its own data loader and evaluation loop; remove the key"


class RLConfig(
    ObjectiveConfig,
    RolloutConfig,
    RolloutServersConfig,
    BatchConfig,
    RewardConfig,
    RewardShapingConfig,
    PolicyConfig,
    DataConfig,
    RowKeysConfig,
    FreezingConfig,
    EvaluationConfig,
    StoppingConfig,
    RecordConfig,
    StageConfig,
    LoaderConfig,
    CriticConfig,
):
    """Every setting of an RL run."""

    support: ClassVar[Mapping[str, Support]] = {
        **{
            name: refused(_LOADER)
            for name in LoaderConfig.model_fields
            if name not in ("remove_unused_columns", "distributed_dataloader", "lazy_data_processing")
        },
        "val_size": refused("held-out prompts come from eval_datasets or held_out; remove the key"),
        "remove_unused_columns": refused(_LOADER, False, None),
        "distributed_dataloader": refused(_LOADER, None),
    }
