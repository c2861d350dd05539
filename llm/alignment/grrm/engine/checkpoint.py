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
