"""Settings of run_dpo.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from grrm.config.key import OURS, Section, Support, key, refused
from grrm.config.keys.data import DataConfig, FreezingConfig
from grrm.config.keys.optimization import EvaluationConfig, LoaderConfig
from grrm.config.keys.reward_model import PairConfig
from grrm.config.stage_config import StageConfig

_LOADER = "this stage lays out its batches and evaluates in its own way; remove the key"


class PreferenceConfig(Section):
    """The policy and the loss of direct preference optimization."""

    title: ClassVar[str] = "Preference optimization"

    model_name_or_path: str = key(
        None,
        "folder of the initial policy, also used as the reference",
        names="model",
        required="give the folder of the policy to go on from",
    )
    tokenizer_name_or_path: str | None = key(None, "folder of the tokenizer", means="model_name_or_path", names="model")
    dpo_loss: Literal["sigmoid", "hinge", "ipo"] = key("sigmoid", "loss function of a pair's log-ratio difference")
    dpo_beta: float = key(0.1, "DPO's beta, strength of the KL constraint to the reference", gt=0, le=10**3)
    dpo_label_smoothing: float = key(0.0, "label smoothing: assumed share of swapped pairs; sigmoid only", ge=0, le=0.5)
    sft_loss_ratio: float = key(
        0.0, "weight of an additional SFT loss on the chosen responses, per token", ge=0, le=10**3
    )


class DPOConfig(PreferenceConfig, PairConfig, DataConfig, FreezingConfig, EvaluationConfig, StageConfig, LoaderConfig):
    """Every setting of preference optimization."""

    support: ClassVar[Mapping[str, Support]] = {
        **{name: refused(_LOADER) for name in LoaderConfig.model_fields},
        "remove_unused_columns": refused(_LOADER, False, None),
        "distributed_dataloader": refused(_LOADER, None),
        "lazy_data_processing": refused(_LOADER, None),
        "per_device_eval_batch_size": OURS,
        "dataloader_shuffle": OURS,
    }
