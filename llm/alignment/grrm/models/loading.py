"""Loading a causal language model from a directory, whichever library wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paddlenlp.transformers import AutoModelForCausalLM

from grrm.models.checkpoint import is_hugging_face, read_config, rotary_overrides, weight_files


def load_causal_lm(directory: str | Path, dtype: str = "float32") -> Any:
    """The PaddleNLP model in `directory`, in eval mode; Hugging Face safetensors are converted on the way.

    Raises UserError when the directory holds no config.json or no whole safetensors weights, or its rotary embeddings
    are of a kind that would be left out.
    """
    directory = Path(directory)
    rotary = rotary_overrides(directory, read_config(directory))
    convert = is_hugging_face(weight_files(directory))
    model = AutoModelForCausalLM.from_pretrained(str(directory), dtype=dtype, convert_from_torch=convert, **rotary)
    model.eval()
    return model
