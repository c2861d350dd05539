"""Loading a model only if its checkpoint is whole: PaddleNLP fills holes with random numbers and a warning."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from grrm.errors import UserError
from grrm.models.checkpoint import is_hugging_face, read_config, weight_files

ARCHITECTURES = ("qwen2",)  # values of model_type in config.json
INDEX_FILE = "model.safetensors.index.json"
# A fused projection holds these, and PaddleNLP converts in both directions.
_FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_fused_proj": ("gate_proj", "up_proj")}


def check_checkpoint(directory: Path) -> dict[str, Any]:
    """The config of the model in `directory`, once everything that can be checked without loading it is in order.

    Raises UserError, one sentence, when the folder or its config.json is missing, the model is of an architecture that
    is not in `ARCHITECTURES`, or a file of weights is missing or cut short.
    """
    if not directory.is_dir():
        state = "is not a folder" if directory.exists() else "does not exist"
        raise UserError(f"the checkpoint folder '{directory}' {state}: give the folder of a model")
    config = read_config(directory)
    model_type = config.get("model_type")
    if model_type not in ARCHITECTURES:
        raise UserError(
            f"the model in '{directory}' is of architecture {model_type!r}, which cannot be opened here: give a "
            f"checkpoint of {' or '.join(ARCHITECTURES)}"
        )
    files = weight_files(directory)
    _check_shards(directory, {file.name for file in files})
    for file in files:
        is_hugging_face([file])
    return config


def load_whole_model(directory: Path, dtype: str) -> Any:
    """The PaddleNLP model in `directory`, every parameter of it from the checkpoint.

    Raises UserError for weights that do not fit config.json or lack a parameter.
    """
    from grrm.models.loading import load_causal_lm

    try:
        model = load_causal_lm(directory, dtype=dtype)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, AssertionError, SafetensorError) as error:
        cause = " ".join(str(error).split())[:300] or type(error).__name__
        raise UserError(
            f"the model in '{directory}' cannot be loaded ({cause}): its weights are damaged or do not fit its "
            "config.json, get them again"
        ) from error
    missing = missing_parameters(model.state_dict(), _stored_names(directory), model.config.tie_word_embeddings)
    if missing:
        more = " and more" if len(missing) > 3 else ""
        raise UserError(
            f"the weights in '{directory}' lack {', '.join(missing[:3])}{more}: they are not whole, get them again"
        )
    return model


def missing_parameters(needed: Iterable[str], stored: Iterable[str], has_tied_head: bool) -> list[str]:
    """Parameters of a model that its files do not hold, sorted, named without the base model's prefix."""
    missing = _plain_names(needed) - _plain_names(stored)
    return sorted(missing - {"lm_head.weight"} if has_tied_head else missing)


def _plain_names(names: Iterable[str]) -> set[str]:
    """Names as both libraries have in common: no base prefix, fused projections taken apart."""
    plain: set[str] = set()
    for name in names:
        head, _, rest = name.partition(".")
        short = rest if head in ("model", *ARCHITECTURES) else name
        fused = next((part for part in _FUSED if f".{part}." in short), None)
        plain |= {short.replace(fused, part) for part in _FUSED[fused]} if fused else {short}
    return plain


def _stored_names(directory: Path) -> set[str]:
    names: set[str] = set()
    for file in weight_files(directory):
        with safe_open(str(file), framework="np") as tensors:
            names |= set(tensors.keys())
    return names


def _check_shards(directory: Path, present: set[str]) -> None:
    index = directory / INDEX_FILE
    if not index.is_file():
        return
    try:
        listed = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"'{index}' is not a readable index of weights: get the checkpoint again") from error
    absent = sorted(str(name) for name in listed - present)
    if absent:
        raise UserError(
            f"the model in '{directory}' lacks {len(absent)} of {len(listed)} files of weights, first {absent[0]}: get "
            "them again"
        )
