"""From a configuration to the arguments of PaddleNLP's Trainer; the only module of this room that imports paddle."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any

import paddle

from grrm.config.checks import check_device
from grrm.config.derive import derive_device
from grrm.config.load import switches_without_effect
from grrm.config.problems import Problems
from grrm.config.stage_config import StageConfig
from grrm.errors import UserError
from grrm.paddlenlp_api.files import logger
from grrm.paddlenlp_api.training import TrainingArguments

# Point-to-point calls that gloo has too, and no shapes remembered: each step's micro-batches have their own.
_PIPELINE = "disable_batch_p2p_comm disable_p2p_cache_shape disable_partial_send_recv"


def available_device() -> str:
    """ "gpu" when this PaddlePaddle was built for GPUs and sees one, else "cpu"."""
    has_gpu = paddle.device.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0
    return "gpu" if has_gpu else "cpu"


@dataclass
class StageArguments(TrainingArguments):  # type: ignore[misc]  # PaddleNLP has no types
    """PaddleNLP's arguments of a stage; trackers and logs show the keys that are not PaddleNLP's as well.

    On a CPU the kernels round what they multiply to `precision`; Trainer's own mixed precision, which would cast
    weights and operators for which Paddle has no products there, stays off.
    """

    bf16: bool = False

    def __post_init__(self) -> None:
        on_cpu = self.device == "cpu"
        self.precision = "bfloat16" if on_cpu and self.bf16 else "float32"
        self.bf16 = self.bf16 and not on_cpu
        self.stage_keys: dict[str, Any] = {}
        self.layer_settings: dict[str, Any] = {}
        super().__post_init__()

    def to_dict(self) -> dict[str, Any]:
        """Every key of the stage but the one that is secret: trackers write them all to their files."""
        values = {**self.stage_keys, **super().to_dict()}
        values.pop("wandb_api_key", None)
        return values


def training_arguments(config: StageConfig) -> StageArguments:
    """PaddleNLP's arguments for this launch, which may join the process group.

    Raises UserError for what this machine's PaddlePaddle or PaddleNLP refuses.
    """
    available, problems = available_device(), Problems()
    device = config.device or available
    config = derive_device(config.model_copy(update={"device": device}), problems)
    check_device(config, available, problems)
    problems.raise_if_any(config.source)
    if os.environ.get("PADDLE_TRAINER_ID", "0") == "0":
        for notice in (*config.notices, *problems.notices, switches_without_effect(config)):
            if notice:
                logger.info(notice)
    paddle.device.set_device(device)
    values = config.model_dump()
    if config.pipeline_parallel_degree > 1:
        values["pipeline_parallel_config"] = _PIPELINE
    theirs = {field.name for field in fields(TrainingArguments)}
    try:
        args = StageArguments(**{name: value for name, value in values.items() if name in theirs})
    except (ValueError, AssertionError) as error:
        raise UserError(f"{config.source}: PaddleNLP refuses these settings: {error}") from error
    args.layer_settings = layer_settings(config)
    args.stage_keys = {name: value for name, value in values.items() if name not in theirs}
    return args


def layer_settings(config: StageConfig) -> dict[str, Any]:
    """Replacements for settings of a model's config, so that its layers train on the device as the file says."""
    keys = ["recompute_granularity", "recompute_use_reentrant"]
    if config.device == "gpu":
        keys += ["use_flash_attention", "use_fused_rope"]
    return {key: getattr(config, key) for key in keys}
