"""Loading a causal language model from a directory, whichever library wrote it."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from paddlenlp.transformers import AutoModelForCausalLM

from grrm.errors import UserError


def load_causal_lm(directory: str | Path, dtype: str = "float32") -> Any:
    """The PaddleNLP model in `directory`, in eval mode; Hugging Face safetensors are converted on the way.

    Raises UserError when the directory holds no config.json or no weights.
    """
    directory = Path(directory)
    if not (directory / "config.json").is_file():
        raise UserError(
            f"There is no model in {directory}: config.json is missing; give the directory of a saved model."
        )
    weights = sorted([*directory.glob("*.safetensors"), *directory.glob("*.pdparams")])
    if not weights:
        raise UserError(f"There are no weights in {directory}: it holds neither *.safetensors nor *.pdparams.")
    model = AutoModelForCausalLM.from_pretrained(
        str(directory), dtype=dtype, convert_from_torch=any(map(_is_torch_safetensors, weights))
    )
    model.eval()
    return model


def _is_torch_safetensors(path: Path) -> bool:
    """Whether the file's header says it was written from torch (linear weights stored (out, in))."""
    if path.suffix != ".safetensors":
        return False
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    return bool(header.get("__metadata__", {}).get("format") == "pt")
