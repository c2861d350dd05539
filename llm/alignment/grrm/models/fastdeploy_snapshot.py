"""A policy's weights as a FastDeploy server reads them again from its model folder (load strategy `ipc_snapshot`).

Written against FastDeploy's sources after 2.6, and never run with it:

* file names and format: fastdeploy/rl/dynamic_weight_manager.py at 49fe57c, `_update_ipc_snapshot`: safetensors, in
  spite of the ending, one file for each tensor rank and GPU number;
* names: `get_name_mappings_to_training` in fastdeploy/rl/rollout_model.py at 0846cec, and the layers of
  fastdeploy/model_executor/models/qwen2.py at 60f5e96 and qwen3.py at 8149c36;
* layout: fastdeploy/model_executor/layers/linear.py at 0009064 and lm_head.py at 8149c36: [in, out] throughout, and
  projections side by side, queries before keys before values, the gate before the other half.

A name that FastDeploy does not know it ignores, one that is missing leaves the server without those weights, and
another shape or dtype is an error there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import paddle
from safetensors.paddle import save_file

from grrm.errors import UserError
from grrm.models.checkpoint import TIED_HEAD

DTYPE = "bfloat16"  # that of FastDeploy's parameters, unless it quantizes them
_PREFIXES = {"qwen2": "qwen2", "qwen3": "model"}  # of FastDeploy's parameters, by the policy's model_type
_GPUS = range(16)  # numbers of GPUs that a server may run on
_FILE = "model_state.tp0.{gpu}.pdparams"
_JOINED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "up_gate_proj": ("gate_proj", "up_proj")}
_COLUMNS = {part: (joined, parts.index(part)) for joined, parts in _JOINED.items() for part in parts}


def check_served(model_type: str) -> None:
    """Raises UserError for an architecture that FastDeploy takes no weights of while it runs."""
    if model_type not in _PREFIXES:
        raise UserError(
            f"rollout_backend fastdeploy is for policies of {' or '.join(_PREFIXES)}, and this one is a {model_type}: "
            "set rollout_backend: vllm"
        )


def snapshot_weights(
    model_type: str, weights: Mapping[str, paddle.Tensor], *, is_tied: bool
) -> dict[str, paddle.Tensor]:
    """A policy's whole weights under FastDeploy's names and in its layout, in the host's memory.

    Args:
        model_type: as in config.json.
        weights: those of PaddleNLP by name, unfused.
        is_tied: whether the output layer shares the embedding's weights; FastDeploy has a transposed copy of them.

    Raises:
        UserError: for an architecture or a parameter that FastDeploy has no place for.
    """
    check_served(model_type)
    served: dict[str, paddle.Tensor] = {}
    parts: dict[str, dict[int, paddle.Tensor]] = {}
    for name, parameter in weights.items():
        tensor = parameter.detach()
        *owner, layer, kind = name.split(".")
        if name == TIED_HEAD:
            served["lm_head.linear.weight"] = _served(paddle.transpose(tensor, [1, 0]) if is_tied else tensor)
            continue
        if owner[:1] != ["qwen2"] or layer in (*_JOINED, "gate_up_fused_proj"):
            raise UserError(f"the policy holds {name}, which FastDeploy has otherwise: give a checkpoint, unfused")
        owner[0] = _PREFIXES[model_type]
        if layer == "embed_tokens":
            layer = "embed_tokens.embeddings"
        if layer in _COLUMNS:
            joined, position = _COLUMNS[layer]
            parts.setdefault(".".join([*owner, joined, kind]), {})[position] = tensor
            continue
        served[".".join([*owner, layer, kind])] = _served(tensor)
        if layer in ("q_norm", "k_norm"):  # one layer of its own holds both in some releases
            served[".".join([*owner, "qk_norm", layer, kind])] = _served(tensor)
    for name, placed in parts.items():
        served[name] = _served(paddle.concat([placed[position] for position in sorted(placed)], axis=-1))
    return served


def write_snapshot(folder: Path, weights: dict[str, paddle.Tensor], step: int) -> None:
    """Replace the weights in `folder`, a server's model folder, by `weights` of `snapshot_weights`, at once.

    Servers on one GPU each are served, whatever its number.

    Args:
        folder: the model folder; it is made where it is missing.
        weights: those of `snapshot_weights`.
        step: of the weights, noted in the file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / _FILE.format(gpu=_GPUS[0])
    unfinished = file.with_name(f".{file.name}.part")
    save_file(weights, unfinished, {"step": str(step)})
    for in_parts in folder.glob("model_state.tp0.*.part*.pdparams"):  # FastDeploy would read these instead
        in_parts.unlink()
    os.replace(unfinished, file)
    for gpu in _GPUS[1:]:
        link = folder / _FILE.format(gpu=gpu)
        if not link.is_symlink():
            link.unlink(missing_ok=True)
            link.symlink_to(file.name)


def _served(tensor: paddle.Tensor) -> paddle.Tensor:
    return tensor.astype(DTYPE).cpu().contiguous()
