"""The part of a checkpoint that keeps a generation batch sampled one step ahead (one-step off-policy).

It was sampled with weights of an earlier step, which no checkpoint has. So a checkpoint stores the samples themselves.
They are judged again when the run is resumed.
"""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grrm.data.atomic import atomic_path
from grrm.data.dataset import PromptItem
from grrm.engine.api import Completion
from grrm.errors import UserError
from grrm.rl.records import Rolled

logger = logging.getLogger(__name__)
FILE = "rollout_ahead.npz"
_REASONS = ("stop", "length")


@dataclass(frozen=True, slots=True)
class SavedSamples:
    """The samples of a prompt, as returned by the engine."""

    prompt_ids: list[int]
    completions: list[Completion]


def write_samples(folder: Path, groups: Sequence[Rolled]) -> None:
    """Save the samples of a generation batch to a checkpoint's folder."""
    with atomic_path(folder / FILE) as path, path.open("wb") as file:
        np.savez(
            file,
            positions=np.asarray([rolled.position for rolled in groups], np.int64),
            samples=np.asarray([len(rolled.token_ids) for rolled in groups], np.int64),
            **_flat("prompt", [rolled.item.prompt_ids for rolled in groups], np.int64),
            **_flat("token", [tokens for rolled in groups for tokens in rolled.token_ids], np.int64),
            **_flat("logprob", [values for rolled in groups for values in rolled.engine_logprobs], np.float32),
            reasons=np.asarray(
                [_REASONS.index(reason) for rolled in groups for reason in rolled.finish_reasons], np.int8
            ),
        )


def read_samples(folder: Path) -> dict[int, SavedSamples]:
    """The samples in a checkpoint's folder by position; empty where it has none. Raises UserError if unreadable."""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        tokens, logprobs = _parts(arrays, "token"), _parts(arrays, "logprob")
        reasons = [_REASONS[number] for number in arrays["reasons"]]
        samples = iter([Completion(*sample) for sample in zip(tokens, logprobs, reasons, strict=True)])
        rows = zip(arrays["positions"].tolist(), _parts(arrays, "prompt"), arrays["samples"].tolist(), strict=True)
        return {position: SavedSamples(prompt, [next(samples) for _ in range(n)]) for position, prompt, n in rows}
    except (OSError, EOFError, ValueError, KeyError, IndexError, StopIteration, zipfile.BadZipFile):
        raise UserError(f"'{path}' is damaged: use an earlier checkpoint") from None


def are_of(saved: Mapping[int, SavedSamples], items: Sequence[PromptItem], rollout_n: int) -> bool:
    """True for `rollout_n` samples of each of these prompts; warns if they are of others."""
    sizes = {position: (samples.prompt_ids, len(samples.completions)) for position, samples in saved.items()}
    if saved and sizes != {position: (list(item.prompt_ids), rollout_n) for position, item in enumerate(items)}:
        logger.warning("the checkpoint's samples for the next step are not of its prompts: they are drawn anew")
        return False
    return bool(saved)


def _flat(name: str, rows: Sequence[Sequence[float] | NDArray[Any]], dtype: Any) -> dict[str, NDArray[Any]]:
    lengths = np.asarray([len(row) for row in rows], np.int64)
    return {f"{name}_lengths": lengths, f"{name}s": np.asarray([value for row in rows for value in row], dtype)}


def _parts(arrays: dict[str, NDArray[Any]], name: str) -> Iterator[list[Any]]:
    ends = np.cumsum(arrays[f"{name}_lengths"])
    if (ends[-1] if ends.size else 0) != arrays[f"{name}s"].size:
        raise ValueError(f"{name}s do not have the lengths they should")
    return (part.tolist() for part in np.split(arrays[f"{name}s"], ends[:-1]))
