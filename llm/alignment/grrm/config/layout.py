"""Layouts of a run over devices, the reasons against some of them, and the smallest that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from grrm.config.model_shape import ModelShape
from grrm.config.stage_config import RLConfig, StageConfig


@dataclass(frozen=True, slots=True)
class Layout:
    """Degrees of parallelism, rows at a time, and what a layer keeps. `stage` 0 is no sharding, `recompute` "" none."""

    tensor: int = 1
    sequence: bool = False
    sharding: int = 1
    stage: int = 0
    recompute: str = ""
    flash: bool = False
    fused_rotary: bool = False
    rows: int = 1  # of a micro-batch
    data: int = 1  # copies of a sharding group, or of a tensor group without sharding
    together: bool = False  # tensor ranks sample together, with their parts of the weights

    @classmethod
    def of(cls, config: StageConfig, devices: int) -> Layout:
        """The layout of a file on so many devices."""
        tensor = max(config.tensor_parallel_degree, 1)
        stages = [int(word[-1]) for word in config.sharding.split() if word.startswith("stage")]
        degree = config.sharding_parallel_degree
        sharding = (degree if degree > 0 else max(devices // tensor, 1)) if stages else 1
        return cls(
            tensor=tensor,
            sequence=tensor > 1 and config.sequence_parallel,
            sharding=sharding,
            data=max(devices // (tensor * sharding), 1),
            stage=stages[0] if stages else 0,
            recompute=config.recompute_granularity if config.recompute else "",
            flash=config.use_flash_attention,
            fused_rotary=config.use_fused_rope,
            rows=config.per_device_train_batch_size,
            together=tensor > 1 and getattr(config, "rollout_tensor_parallel_degree", 1) > 1,
        )

    @property
    def sampling_ranks(self) -> int:
        """Number of ranks of an engine of rollouts."""
        return self.tensor if self.together else 1


def can_sample_together(config: StageConfig) -> bool:
    """True if tensor ranks can sample with their parts of the weights: in the precision that layers divide in."""
    if not isinstance(config, RLConfig) or config.rollout_quant_type or config.rollout_backend != "paddle":
        return False
    return not (config.device == "cpu" and config.bf16)


def smallest_layout(
    config: StageConfig, shape: ModelShape, devices: int, fits: Callable[[Layout], bool]
) -> Layout | None:
    """The first layout that `fits`, from those that cost least to those that cost most; None where none does.

    Those that a run of `config` would refuse are left out.

    Sharding talks once a step, so all ranks share the optimizer. Micro-batches of half as many rows cost little,
    recompute adds a third to the work, and tensor parallel, with sequence parallel, talks in every layer; where ranks
    sample together, for every token of a rollout too.
    """
    return next((layout for layout in _layouts(config, shape, devices) if fits(layout)), None)


def _layouts(config: StageConfig, shape: ModelShape, devices: int) -> Iterator[Layout]:
    layout, budget = Layout.of(config, devices), getattr(config, "max_tokens_per_micro_batch", 0)
    for tensor in shape.degrees(devices):
        if devices % tensor or (config.lora and tensor > 1):
            continue
        sharding = devices // tensor
        together = (False, True) if tensor > 1 and can_sample_together(config) else (False,)
        for is_together, recompute, halvings in product(together, ("", "full"), range(layout.rows.bit_length())):
            if layout.rows % 2**halvings:
                continue  # other sizes might not divide the rows of an update
            yield replace(
                layout,
                tensor=tensor,
                sequence=tensor > 1 and not budget,
                sharding=sharding,
                data=1,
                stage=1 if sharding > 1 else 0,
                recompute=recompute,
                rows=layout.rows // 2**halvings,
                together=is_together,
            )
