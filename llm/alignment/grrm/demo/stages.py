"""A stage of the demo: a command with inputs and outputs, and the marks that say whether it needs to run.

A stage owns one folder. Beside the folders lie two marks per stage: `<name>.started.json` from its first moment and
`<name>.done.json` from its last, both with the stage's fingerprint.

Done with the same fingerprint: reused. Training that has started with the same fingerprint: run again in the folder as
it is, so that it resumes from its checkpoints. Anything else: the folder is emptied first, so nothing stale is resumed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grrm.data import atomic
from grrm.data.downloads import sha256_of

SERVER_PLACEHOLDER = "{reward_server}"


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of the demo.

    Attributes:
        name: unique, may contain "/".
        command: a list of arguments in which `{reward_server}` stands for the URL of a reward server.
        reward_server: the options that this server is started with.
        inputs: files, or folders with all files in them. Command, server and their contents make the fingerprint.
        outputs: files that must exist afterwards.
        metrics: a metrics.jsonl that feeds the progress line, with `total_steps`; the line shows the keys `shown`.
        ends_with_result: the last line of output is worth showing when the stage is done.
        timeout_s: the deadline of one run.
        planned_s: seconds on two idle cores, 0 where there is no estimate.
        scrap: patterns of files that are not needed once the stage is done.
    """

    name: str
    title: str
    command: Sequence[str]
    folder: Path
    reward_server: Sequence[str] = ()
    inputs: Sequence[Path] = ()
    outputs: Sequence[Path] = ()
    metrics: Path | None = None
    total_steps: int | None = None
    shown: Sequence[str] = ("loss",)
    ends_with_result: bool = False
    timeout_s: float = 3600.0
    planned_s: float = 0.0
    scrap: Sequence[str] = ()

    @property
    def needs_server(self) -> bool:
        """True when the command names the reward server."""
        return any(SERVER_PLACEHOLDER in argument for argument in self.command)


@dataclass(frozen=True, slots=True)
class Mark:
    """Content of a mark file: the fingerprint it was made with, and the seconds spent so far over all attempts."""

    fingerprint: str
    seconds: float


class Marks:
    """The marks of the stages of one output folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def is_done(self, stage: Stage, fingerprint: str) -> bool:
        """True when the stage finished with this fingerprint and its outputs are still there."""
        mark = self.done(stage.name)
        return mark is not None and mark.fingerprint == fingerprint and not missing_outputs(stage)

    def done(self, name: str) -> Mark | None:
        """The mark of a finished stage, None when it has not finished."""
        return _read(self._path(name, "done"))

    def begin(self, stage: Stage, fingerprint: str) -> float:
        """Get the stage's folder ready and mark it as started; returns the seconds of earlier attempts.

        The folder is emptied unless earlier training with the same fingerprint was interrupted.
        """
        earlier = _read(self._path(stage.name, "started"))
        resumes = earlier is not None and earlier.fingerprint == fingerprint and self.done(stage.name) is None
        self._path(stage.name, "done").unlink(missing_ok=True)
        seconds = earlier.seconds if earlier is not None and resumes else 0.0
        if stage.folder.exists() and not (resumes and stage.metrics):
            shutil.rmtree(stage.folder)
        stage.folder.mkdir(parents=True, exist_ok=True)
        self.interrupt(stage, fingerprint, seconds)
        return seconds

    def interrupt(self, stage: Stage, fingerprint: str, seconds: float) -> None:
        """Remember the seconds of an attempt that did not finish."""
        write_json(self._path(stage.name, "started"), {"fingerprint": fingerprint, "seconds": seconds})

    def finish(self, stage: Stage, fingerprint: str, seconds: float) -> None:
        """Mark the stage as done, and remove its scrap."""
        write_json(self._path(stage.name, "done"), {"fingerprint": fingerprint, "seconds": seconds})
        for path in [path for pattern in stage.scrap for path in stage.folder.glob(pattern)]:
            shutil.rmtree(path)

    def forget(self, stage: Stage) -> None:
        """Have the stage start over, whatever has been done of it."""
        for kind in ("started", "done"):
            self._path(stage.name, kind).unlink(missing_ok=True)

    def _path(self, name: str, kind: str) -> Path:
        return self.folder / f"{flat_name(name)}.{kind}.json"


def flat_name(name: str) -> str:
    """A stage's name as part of a file name."""
    return name.replace("/", "-")


def missing_outputs(stage: Stage) -> list[Path]:
    """The promised outputs that are not there."""
    return [path for path in stage.outputs if not path.exists()]


def fingerprint_of(stage: Stage, placeholders: Mapping[str, str]) -> str:
    """Digest of the command, the server's options and the contents of the inputs.

    `placeholders` maps paths (of the checkout, of the output folder) to words that replace them in the command, so
    that moving a folder does not run everything again. Raises FileNotFoundError when an input is missing.
    """
    command, server = ("\0".join(words) for words in (stage.command, stage.reward_server))
    for path, word in sorted(placeholders.items(), key=lambda item: -len(item[0])):
        command, server = command.replace(path, word), server.replace(path, word)
    contents = [digest_of(path) for path in stage.inputs]
    text = json.dumps([command, server, contents], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(path: Path) -> str:
    """SHA-256 of a file, or of the names and contents of all files below a folder (hidden ones left out)."""
    if not path.is_dir():
        return sha256_of(path)
    digest = hashlib.sha256()
    files = (entry for entry in path.rglob("*") if entry.is_file() and not entry.name.startswith("."))
    for entry in sorted(files):
        digest.update(f"{entry.relative_to(path).as_posix()}\0{digest_of(entry)}\0".encode())
    return digest.hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON; the file appears whole or not at all."""
    atomic.write_json(path, value, allow_nan=False)


def _read(path: Path) -> Mark | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return Mark(str(value["fingerprint"]), float(value["seconds"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None  # a damaged mark proves nothing, so the stage runs again
