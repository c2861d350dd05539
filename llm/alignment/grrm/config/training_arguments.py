"""The argument classes handed to PaddleNLP's Trainer; the only module of this package that imports paddle."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import paddle
from paddlenlp.trainer import TrainingArguments
from paddlenlp.utils.log import logger

from grrm.config.batch_plan import BatchPlan, batch_plan
from grrm.config.checks import Launch
from grrm.config.fields import CommonFields, RLFields, SFTFields
from grrm.config.load import launched_processes, prepare
from grrm.errors import UserError


def available_device() -> str:
    """ "gpu" when this PaddlePaddle was built for GPUs and sees one, else "cpu"."""
    has_gpu = paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0
    return "gpu" if has_gpu else "cpu"


class _DeviceDefault(CommonFields):
    def __post_init__(self) -> None:
        self.device = self.device or available_device()
        # On a CPU the kernels round what they multiply; Trainer's own mixed precision, which would cast weights and
        # operators for which Paddle has no products there, stays off.
        on_cpu = self.device == "cpu"
        self.precision = "bfloat16" if on_cpu and self.bf16 else "float32"
        self.bf16 = self.bf16 and not on_cpu
        super().__post_init__()  # type: ignore[misc]  # TrainingArguments comes next in the method order


@dataclass
class RLArguments(_DeviceDefault, RLFields, TrainingArguments):
    """Every setting of an RL run. Use `load_arguments`: the constructor itself checks only what PaddleNLP checks."""

    def batch_plan(self, n_train_prompts: int | None = None) -> BatchPlan:
        """The run's batch arithmetic on its data ranks. Raises UserError when sizes do not divide."""
        return batch_plan(self, self.dataset_world_size, n_train_prompts)


@dataclass
class SFTArguments(_DeviceDefault, SFTFields, TrainingArguments):
    """Every setting of a supervised run; obtain it from `load_sft_arguments`."""


_Arguments = TypeVar("_Arguments", RLArguments, SFTArguments)


def build(cls: type[_Arguments], kind: str, yaml_path: str | os.PathLike[str], overrides: Sequence[str]) -> _Arguments:
    """Check the file for this launch and construct `cls`; `kind` is "RL" or "SFT". Raises UserError, one sentence."""
    launch = Launch(available_device(), launched_processes())
    prepared = prepare(kind, yaml_path, overrides, launch)
    if prepared.notice and os.environ.get("PADDLE_TRAINER_ID", "0") == "0":
        logger.info(prepared.notice)
    paddle.set_device(prepared.values["device"])
    try:
        return cls(**prepared.values)
    except (ValueError, AssertionError) as error:
        raise UserError(f"{os.fspath(yaml_path)}: PaddleNLP refuses these settings: {error}") from error
