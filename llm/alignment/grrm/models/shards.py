"""Safetensors files as transformers reads them, written tensor by tensor: in parts with an index where they are large.

NumPy has no bfloat16, so that the library's own writer for NumPy cannot be used; the format is a header and the bytes.
"""

from __future__ import annotations

import json
import math
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grrm.data.atomic import write_json
from grrm.errors import UserError

SHARD_BYTES = 5 * 10**9
WIDTHS = {"F32": 4, "BF16": 2, "F16": 2}  # bytes of a number, by safetensors' name of its type


@dataclass(frozen=True, slots=True)
class TensorToWrite:
    """A tensor whose numbers, words of `dtype`'s width, are made when it is written."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    words: Callable[[], NDArray[Any]]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * WIDTHS[self.dtype]


def write_weights(folder: Path, tensors: Iterable[TensorToWrite]) -> None:
    """Write model.safetensors, or parts of at most SHARD_BYTES (or one tensor) and model.safetensors.index.json."""
    shards: list[list[TensorToWrite]] = [[]]
    for tensor in tensors:
        if shards[-1] and sum(other.nbytes for other in shards[-1]) + tensor.nbytes > SHARD_BYTES:
            shards.append([])
        shards[-1].append(tensor)
    names = [
        "model.safetensors" if len(shards) == 1 else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        for number in range(1, len(shards) + 1)
    ]
    for name, shard in zip(names, shards, strict=True):
        _write_shard(folder / name, shard)
    if len(shards) > 1:
        weight_map = {tensor.name: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
        total = sum(tensor.nbytes for shard in shards for tensor in shard)
        write_json(
            folder / "model.safetensors.index.json",
            {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))},
            indent=2,
        )


def _write_shard(path: Path, shard: Sequence[TensorToWrite]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in shard:
        start, end = end, end + tensor.nbytes
        header[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the numbers begin at a multiple of eight
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in shard:
            file.write(np.ascontiguousarray(tensor.words()).data)


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `out` where the block ends well. Raises UserError for an `out` that exists."""
    check_new(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as unfinished:
        folder = Path(unfinished) / out.name
        folder.mkdir()
        yield folder
        folder.rename(out)


def check_new(out: Path) -> None:
    """Raises UserError where `out` is there already."""
    if out.exists():
        raise UserError(f"'{out}' is there already: name a folder that is not")


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
