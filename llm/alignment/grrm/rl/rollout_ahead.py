"""A generation batch that is sampled one step ahead (one-step off-policy), and its part of a checkpoint.

It was sampled with weights of an earlier step, which no checkpoint has. So a checkpoint stores the samples themselves.
They are judged again when the run is resumed.
"""

from __future__ import annotations

import logging
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grrm.data.atomic import atomic_path
from grrm.data.dataset import PromptItem
from grrm.engine.api import Completion
from grrm.errors import UserError
from grrm.rl.reward_stream import RewardStream
from grrm.rl.rollout import RolledGroup

logger = logging.getLogger(__name__)
FILE = "rollout_ahead.npz"
_REASONS = ("stop", "length")


@dataclass(slots=True)
class StartedBatch:
    """This rank's groups of a generation batch of `n_prompts` prompts, and the stream that rewards them.

    `drawing` returns them once they are sampled, immediately if the engine is in this process. `is_judged` says that
    they are sent to the judge as soon as they are complete, without waiting for them.
    """

    n_prompts: int
    drawing: Future[list[RolledGroup]]
    rewards: RewardStream
    is_judged: bool
    seconds: float = 0.0

    def settle(self) -> None:
        """Wait until engine and judge are idle; their exceptions are raised when the results are used."""
        wait([self.drawing])
        if self.is_judged:
            self.rewards.settle()


def done(groups: list[RolledGroup]) -> Future[list[RolledGroup]]:
    """Groups that are already available."""
    future: Future[list[RolledGroup]] = Future()
    future.set_result(groups)
    return future


def in_thread(work: Callable[[], list[RolledGroup]]) -> Future[list[RolledGroup]]:
    """The future result or exception of `work`, in a daemon thread, which cannot keep a failed process alive."""
    future: Future[list[RolledGroup]] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            future.set_exception(error)

    threading.Thread(target=run, name="rollout ahead", daemon=True).start()
    return future


@dataclass(frozen=True, slots=True)
class Drawn:
    """The samples of a prompt, as returned by the engine."""

    position: int
    prompt_ids: list[int]
    completions: list[Completion]

    @classmethod
    def of(cls, rolled: RolledGroup) -> Drawn:
        """The samples of a group."""
        samples = zip(rolled.token_ids, rolled.engine_logprobs, rolled.finish_reasons, strict=True)
        completions = [Completion(list(tokens), logprobs.tolist(), reason) for tokens, logprobs, reason in samples]
        return cls(rolled.position, list(rolled.prompt_ids), completions)


def write_drawn(folder: Path, drawn: Sequence[Drawn]) -> None:
    """Save the samples of a generation batch to a checkpoint's folder."""
    samples = [one for prompt in drawn for one in prompt.completions]
    with atomic_path(folder / FILE) as path, path.open("wb") as file:
        np.savez(
            file,
            positions=np.asarray([prompt.position for prompt in drawn], np.int64),
            samples=np.asarray([len(prompt.completions) for prompt in drawn], np.int64),
            **_flat("prompt", [prompt.prompt_ids for prompt in drawn], np.int64),
            **_flat("token", [one.token_ids for one in samples], np.int64),
            **_flat("logprob", [one.logprobs for one in samples], np.float32),
            reasons=np.asarray([_REASONS.index(one.finish_reason) for one in samples], np.int8),
        )


def read_drawn(folder: Path) -> dict[int, Drawn]:
    """The samples in a checkpoint's folder by position; empty where it has none. Raises UserError if unreadable."""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        tokens, logprobs = _parts(arrays, "token"), _parts(arrays, "logprob")
        reasons = [_REASONS[number] for number in arrays["reasons"]]
        samples = iter([Completion(*one) for one in zip(tokens, logprobs, reasons, strict=True)])
        rows = zip(arrays["positions"].tolist(), _parts(arrays, "prompt"), arrays["samples"].tolist(), strict=True)
        return {place: Drawn(place, prompt, [next(samples) for _ in range(n)]) for place, prompt, n in rows}
    except (OSError, EOFError, ValueError, KeyError, IndexError, StopIteration, zipfile.BadZipFile):
        raise UserError(f"'{path}' is damaged: use an earlier checkpoint") from None


def are_of(drawn: Mapping[int, Drawn], items: Sequence[PromptItem], rollout_n: int) -> bool:
    """Whether these are `rollout_n` samples of each of these prompts; warns if they are of others."""
    found = {place: (one.prompt_ids, len(one.completions)) for place, one in drawn.items()}
    if drawn and found != {place: (list(item.prompt_ids), rollout_n) for place, item in enumerate(items)}:
        logger.warning("the checkpoint's samples for the next step are not of its prompts: they are drawn anew")
        return False
    return bool(drawn)


def _flat(name: str, rows: Sequence[Sequence[float]], dtype: Any) -> dict[str, NDArray[Any]]:
    lengths = np.asarray([len(row) for row in rows], np.int64)
    return {f"{name}_lengths": lengths, f"{name}s": np.asarray([value for row in rows for value in row], dtype)}


def _parts(arrays: dict[str, NDArray[Any]], name: str) -> Iterator[list[Any]]:
    ends = np.cumsum(arrays[f"{name}_lengths"])
    if (ends[-1] if ends.size else 0) != arrays[f"{name}s"].size:
        raise ValueError(f"{name}s do not have the lengths they should")
    return (part.tolist() for part in np.split(arrays[f"{name}s"], ends[:-1]))
