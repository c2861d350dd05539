"""Loading PaddleNLP's unified checkpoints with any number of ranks and any degrees of parallelism.

Their files hold whole tensors by name, so every rank can pick what it needs where it sees all of them.

PaddleNLP's own loader gets there only in part: a single process reads the first file and no other, and ranks that are
laid out otherwise than those that saved ask for the optimizer state of frozen weights, which there is none of.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grrm.models.lora import has_adapters
from grrm.paddlenlp_api.unified import (
    FP32_MASTER,
    SAFE_MASTER_WEIGHTS_INDEX_NAME,
    SAFE_OPTIMIZER_INDEX_NAME,
    SAFE_PEFT_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_INDEX_NAME,
    UnifiedCheckpointHandler,
    get_expected_state_dict,
    load_state_dict,
    load_unified_checkpoint_locally,
    load_unified_optimizer_locally,
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
