"""Settings of run_sft.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grrm.config.key import OURS, Section, Support, key, refused
from grrm.config.keys.data import DataConfig, FreezingConfig, RowKeysConfig
from grrm.config.keys.optimization import EvaluationConfig, LoaderConfig
from grrm.config.stage_config import StageConfig

_LOOP = "held-out rows are scored by this stage itself; remove the key"
_LOOP_KEYS = ("prediction_loss_only", "eval_accumulation_steps", "max_evaluate_steps", "label_names")


class SupervisedConfig(Section):
    """Model and rows of the cold start."""

    title: ClassVar[str] = "Supervised training"

    model_name_or_path: str | None = key(None, "folder or name of the initial model", names="model")
    init_from_config: str | None = key(None, "JSON file of a model configuration to train from scratch", names="file")
    tokenizer_name_or_path: str | None = key(None, "folder of the tokenizer", means="model_name_or_path", names="model")
    max_length: int = key(
        2048,
        "maximum length of prompt and response; longer rows are skipped and counted",
        unit="tokens",
        ge=1,
        le=10**7,
    )
    train_on_prompt: bool = key(False, "compute the loss on prompt tokens as well")
    form_weight: float = key(
        1.0,
        "weight of the tokens outside the `decisive` characters of a row; decisive ones and other rows have 1",
        ge=0,
        le=1,
    )


class SFTConfig(
    SupervisedConfig, DataConfig, RowKeysConfig, FreezingConfig, EvaluationConfig, StageConfig, LoaderConfig
):
    """Every setting of a supervised run."""

    support: ClassVar[Mapping[str, Support]] = {
        **{name: refused(_LOOP) for name in _LOOP_KEYS},
        "per_device_eval_batch_size": OURS,
        "distributed_dataloader": refused("every rank reads the rows itself; remove the key", None),
        "dataloader_shuffle": refused("PaddleNLP's loader always shuffles; remove the key"),
    }
