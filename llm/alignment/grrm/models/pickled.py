"""Weights that Paddle has pickled, as a Trainer without unified checkpoints saves them, read without running code."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grrm.errors import UserError

PICKLED = "model_state.pdparams"
_DTYPES = {np.dtype("<f4"): "F32", np.dtype("<f2"): "F16", np.dtype("<u2"): "BF16"}  # Paddle saves bfloat16 as words
_ALLOWED = {("numpy", "ndarray"), ("numpy", "dtype")} | {
    (f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it holds {module}.{name}")
        return super().find_class(module, name)


def read_pickled(file: Path) -> Iterator[tuple[str, str, NDArray[Any]]]:
    """Name, type as safetensors calls it, and array of each weight; all are in memory at once.

    Raises UserError for a file that holds anything but arrays, which could run code, or is damaged.
    """
    try:
        with file.open("rb") as stream:
            state = dict(_ArraysOnly(stream).load())
    except (OSError, EOFError, pickle.UnpicklingError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"'{file}' is no file of weights alone ({error}): give another checkpoint") from error
    weights = {name: array for name, array in state.items() if isinstance(array, np.ndarray)}
    for name, array in weights.items():
        if array.dtype not in _DTYPES:
            raise UserError(f"{name} in '{file}' is stored as {array.dtype}: export float32, bfloat16 or float16")
        yield name, _DTYPES[array.dtype], array
