"""The files of a checkpoint's folder that hold its weights, and who wrote them."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable
from pathlib import Path

from safetensors import SafetensorError, safe_open

from grrm.errors import UserError
from grrm.models.hub import INDEX_FILE, REWARD_MODEL_FILES, indexed_files
from grrm.models.shards import PICKLED

_ADAPTERS = "peft_model"
_BESIDE_WEIGHTS = (_ADAPTERS, "optimizer", "master_weights")  # in a unified checkpoint


def weight_files(directory: Path) -> list[Path]:
    """The checkpoint's safetensors files, every shard there and its header whole.

    Raises UserError when there are none. Pickled weights (*.pdparams, *.bin) can run code when they are loaded and are
    refused.
    """
    names = sorted(
        file.name for file in directory.glob("*.safetensors") if file.is_file()
    )  # a pipe would be waited for
    files = [directory / name for name in names if not name.startswith(_BESIDE_WEIGHTS)]
    if not files:
        raise _no_weights(directory)
    _check_shards(directory, {file.name for file in files})
    for file in files:
        is_from_torch(file)
    return files


def drop_other_weights(directory: Path, names: Collection[str]) -> None:
    """Remove files of weights in a folder that are not among `names`, those of the model saved there last.

    Shards of an earlier model, and their index, would be loaded in its place; a head would make it a reward model.
    """
    for pattern in ("*.safetensors", INDEX_FILE, *REWARD_MODEL_FILES):
        for path in directory.glob(pattern):
            if path.name not in names:
                path.unlink()


def _no_weights(directory: Path) -> UserError:
    if any(directory.glob(f"{_ADAPTERS}*.safetensors")):
        return UserError(
            f"'{directory}' holds LoRA adapters only: give the output folder of the finished run, whose model is merged"
        )
    if (directory / PICKLED).is_file():
        return UserError(
            f"model directory '{directory}' holds pickled weights only ({PICKLED}), which could run code: convert them "
            f"with `grrm export {shlex.quote(str(directory))} NEW_FOLDER`, which runs none, or train with "
            "unified_checkpoint: true"
        )
    pickled = sorted([*directory.glob("*.pdparams"), *directory.glob("*.bin")])
    if pickled:
        return UserError(
            f"model directory '{directory}' holds pickled weights only ({pickled[0].name}), which could run code: "
            "convert them with save_pretrained(..., safe_serialization=True) where you trust them"
        )
    return UserError(f"model directory '{directory}' has no weights (*.safetensors): pass a checkpoint directory")


def _check_shards(directory: Path, present: set[str]) -> None:
    index = directory / INDEX_FILE
    if not index.is_file():
        return
    try:
        listed = indexed_files(index)
    except (OSError, ValueError) as error:
        raise UserError(f"'{index}' is not a readable index of weights: get the checkpoint again") from error
    absent = [name for name in listed if name not in present]
    if absent:
        raise UserError(
            f"the model in '{directory}' lacks {len(absent)} of {len(listed)} files of weights, first {absent[0]}: get "
            "them again"
        )


def is_from_torch(file: Path) -> bool:
    """True when the weights were written from torch, with linear weights stored (out, in), by their record or names.

    Raises UserError for a file that is not whole.
    """
    try:
        with safe_open(str(file), framework="np") as tensors:
            writer, names = (tensors.metadata() or {}).get("format"), set(tensors.keys())
            return writer == "pt" or any(name.startswith("model.") for name in names)  # PaddleNLP's never do
    except (SafetensorError, OSError) as error:
        raise damaged(file.parent, error, "are damaged") from error


def stored_names(files: Iterable[Path]) -> set[str]:
    """The names of all tensors in the files."""
    names: set[str] = set()
    for file in files:
        with safe_open(str(file), framework="np") as tensors:
            names |= set(tensors.keys())
    return names


def damaged(directory: Path, error: Exception, state: str) -> UserError:
    """The error of weights in such a state."""
    cause = " ".join(str(error).split())[:300] or type(error).__name__
    return UserError(f"the model in '{directory}' cannot be loaded ({cause}): its weights {state}, get them again")
