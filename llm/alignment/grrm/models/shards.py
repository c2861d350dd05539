"""Safetensors files as transformers reads them, written tensor by tensor: in parts with an index where they are large.

NumPy has no bfloat16, so that the library's own writer for NumPy cannot be used; the format is a header and the bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file of a checkpoint folder that is not yet in its place."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
