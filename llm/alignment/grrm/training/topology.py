"""Layout of a run over processes, in a checkpoint's marker, and loading of unified checkpoints with any layout.

Their files hold whole tensors by name, so every rank can pick what it needs where it sees all of them.

PaddleNLP's own loader gets there only in part: a single process reads the first file and no other, and ranks that are
laid out otherwise than those that saved ask for the optimizer state of frozen weights, which there is none of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grrm.errors import UserError
from grrm.models.lora import has_adapters
from grrm.paddlenlp_api.training import (
    FP32_MASTER,
    SAFE_MASTER_WEIGHTS_INDEX_NAME,
    SAFE_OPTIMIZER_INDEX_NAME,
    SAFE_PEFT_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_INDEX_NAME,
    TrainingArguments,
    UnifiedCheckpointHandler,
    get_expected_state_dict,
    load_state_dict,
    load_unified_checkpoint_locally,
    load_unified_optimizer_locally,
)


@dataclass(frozen=True, slots=True)
class Topology:
    """Degrees of parallelism, rows of an optimizer step, and whether checkpoints are PaddleNLP's unified ones."""

    data: int
    sharding: int
    tensor: int
    pipeline: int
    rows_per_step: int
    unified: bool

    @classmethod
    def of(cls, args: TrainingArguments) -> Topology:
        """Return the topology of this run, once its gradient accumulation is known."""
        sharding = max(args.sharding_parallel_degree, 1)
        ranks = args.dataset_world_size
        return cls(
            data=ranks // sharding,
            sharding=sharding,
            tensor=max(args.tensor_parallel_degree, 1),
            pipeline=max(args.pipeline_parallel_degree, 1),
            rows_per_step=args.per_device_train_batch_size * args.gradient_accumulation_steps * ranks,
            unified=bool(args.unified_checkpoint),
        )

    @property
    def parts(self) -> tuple[int, int, int]:
        """Degrees that a checkpoint's parts belong to, unless it is a unified one."""
        return self.sharding, self.tensor, self.pipeline

    @property
    def layout(self) -> str:
        """Processes and degrees in words."""
        degrees = {"data": self.data, "sharding": self.sharding, "tensor": self.tensor, "pipeline": self.pipeline}
        processes = self.data * self.sharding * self.tensor * self.pipeline
        product = " x ".join(f"{name} {degree}" for name, degree in degrees.items() if degree > 1)
        return f"{processes} process{'es' * (processes > 1)}" + (f" ({product})" if product else "")


def check_topology(checkpoint: Path, saved: Mapping[str, Any] | None, now: Topology) -> None:
    """Raises UserError when a run that is laid out as `now` cannot go on from what one laid out as `saved` wrote.

    A unified checkpoint fits any layout. Of the other kind each part belongs to one place in the tensor-parallel,
    pipeline and sharding groups; only the number of data-parallel ranks may change. None, of a marker without a
    topology, is not checked.
    """
    if saved is None:
        return
    before = Topology(**saved)
    if before.rows_per_step != now.rows_per_step:
        raise UserError(
            f"checkpoint '{checkpoint}' is of a run with {before.rows_per_step} rows in an optimizer step, and this "
            f"one has {now.rows_per_step}, which would skip or repeat rows: resume with the batch sizes it was saved "
            "with, or give the checkpoint as the model to start from its weights"
        )
    if before.unified and now.unified:
        return
    if before.unified:
        raise UserError(f"checkpoint '{checkpoint}' is a unified one: set unified_checkpoint: true to resume from it")
    if before.parts != now.parts:
        raise UserError(
            f"checkpoint '{checkpoint}' was saved in parts by {before.layout}, and this run is laid out over "
            f"{now.layout}: resume with the same tensor, sharding and pipeline degrees; with unified_checkpoint: true "
            "the next checkpoint fits any layout"
        )


class AnyLayoutHandler(UnifiedCheckpointHandler):
    """PaddleNLP's handler, but for what it loads. Every rank must see all files of the checkpoint."""

    def load_unified_checkpoint(self, model: Any, resume_from_checkpoint: str) -> None:
        """Give the model the checkpoint's weights; Trainer sends them on from the first data rank."""
        if self.args.world_size <= 1:
            index = SAFE_PEFT_WEIGHTS_INDEX_NAME if has_adapters(model) else SAFE_WEIGHTS_INDEX_NAME
            model.set_state_dict(_read_all(Path(resume_from_checkpoint), index))
        elif self.args.dataset_rank == 0:
            load_unified_checkpoint_locally(self.args, model, resume_from_checkpoint, safe_serialization=True)

    def load_unified_optimizer(self, model: Any, optimizer: Any, resume_from_checkpoint: str) -> Any:
        """The optimizer state of this rank; None where it comes from the first data-parallel rank."""
        index = _index(Path(resume_from_checkpoint), SAFE_OPTIMIZER_INDEX_NAME)
        if "weight_map" not in index or "ckpt_quant_stage" in index:  # in parts by rank, or rounded
            return super().load_unified_optimizer(model, optimizer, resume_from_checkpoint)
        if self.args.world_size <= 1:
            return _optimizer_alone(model, optimizer, Path(resume_from_checkpoint), bool(index["master_weights"]))
        if self.args.data_parallel_rank > 0:
            return None
        return load_unified_optimizer_locally(
            self.args, model, optimizer, resume_from_checkpoint, safe_serialization=True
        )


def _index(checkpoint: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((checkpoint / name).read_text(encoding="utf-8")))


def _read_all(checkpoint: Path, index_name: str) -> dict[str, Any]:
    """Every tensor that an index lists, by name."""
    weight_map = _index(checkpoint, index_name)["weight_map"]
    tensors: dict[str, Any] = {}
    for file in sorted(set(weight_map.values())):
        tensors.update(load_state_dict(str(checkpoint / file), None, set(weight_map), device="expected"))
    return tensors


def _optimizer_alone(model: Any, optimizer: Any, checkpoint: Path, has_master_weights: bool) -> dict[str, Any]:
    """The whole optimizer state under the names that it has in this process."""
    parameters = get_expected_state_dict(model)
    state = dict(optimizer.state_dict())
    for key, tensor in _read_all(checkpoint, SAFE_OPTIMIZER_INDEX_NAME).items():
        name, kind = key.split("/")
        is_master = has_master_weights and "float32" not in str(parameters[name].dtype)
        tensor.name = "_".join([parameters[name].name, *([FP32_MASTER] if is_master else []), kind])
        state[tensor.name] = tensor
    if has_master_weights:
        state["master_weights"] = {}
        for name, tensor in _read_all(checkpoint, SAFE_MASTER_WEIGHTS_INDEX_NAME).items():
            tensor.name = f"{parameters[name].name}_{FP32_MASTER}"
            state["master_weights"][parameters[name].name] = tensor
    return state
