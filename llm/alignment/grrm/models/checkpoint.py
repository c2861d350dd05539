"""What a model directory holds, checked before anything is loaded from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from grrm.errors import UserError


def read_config(directory: Path) -> dict[str, Any]:
    """The checkpoint's config.json. Raises UserError when there is none or it is not a JSON object."""
    place = f"'{directory}/config.json'"
    try:
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"model directory '{directory}' has no config.json: pass a checkpoint directory") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{place} is not readable JSON ({error}): pass a checkpoint directory") from None
    if not isinstance(config, dict):
        raise UserError(f"{place} is not a JSON object: pass a checkpoint directory")
    return config


def rotary_overrides(directory: Path, config: dict[str, Any]) -> dict[str, Any]:
    """What PaddleNLP has to be told of the rotary embeddings in a config.json that transformers wrote.

    Version 5 writes `rope_parameters`, which PaddleNLP does not read: it would run the model with its own default of
    `rope_theta`. Of `rope_scaling` it reads Llama 3's and ignores the rest. Raises UserError for a scaling that would
    be left out.
    """
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = given.get("rope_type", given.get("type")) or "default"
    overrides = {"rope_theta": given["rope_theta"]} if "rope_theta" in given and "rope_theta" not in config else {}
    is_llama = config.get("model_type") == "llama"
    if kind == "default" and not any(isinstance(value, dict) for value in given.values()):
        return overrides
    if kind == "linear" and is_llama:
        return overrides | {"rope_scaling_type": "linear", "rope_scaling_factor": given["factor"]}
    if kind == "llama3" and is_llama and config.get("rope_scaling"):
        return overrides
    raise UserError(
        f"'{directory}/config.json' scales rotary embeddings ({kind}) in a way that PaddleNLP would leave out for this "
        "architecture: use a checkpoint without rope_scaling and rope_parameters other than rope_theta"
    )


def weight_files(directory: Path) -> list[Path]:
    """The checkpoint's safetensors files.

    Raises UserError when there are none. Pickled weights (*.pdparams, *.bin) can run code when they are loaded and are
    refused.
    """
    files = sorted(directory.glob("*.safetensors"))
    if files:
        return files
    pickled = sorted([*directory.glob("*.pdparams"), *directory.glob("*.bin")])
    if pickled:
        raise UserError(
            f"model directory '{directory}' holds pickled weights only ({pickled[0].name}), which could run code: "
            "convert them with save_pretrained(..., safe_serialization=True) where you trust them"
        )
    raise UserError(f"model directory '{directory}' has no weights (*.safetensors): pass a checkpoint directory")


def is_hugging_face(files: list[Path]) -> bool:
    """True when the weights were written from torch, with linear weights stored (out, in).

    Raises UserError for a file that is not whole.
    """
    try:
        with safe_open(str(files[0]), framework="np") as tensors:
            return (tensors.metadata() or {}).get("format") == "pt"
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"the model in '{files[0].parent}' cannot be loaded ({error}): its weights are damaged, get them again"
        ) from error
