"""Processes in which benchmarks measure: run to their end, as ranks, or kept as workers that answer lines of JSON.

Answers are lines that begin with `MARK`. Nothing of grrm is imported here, as the Pythons of other projects have none.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MARK = "@@"
ROUNDED = {"bf16": "bfloat16", "int8": "int8"}  # by what an engine's name holds
_TIMEOUT_S = 1800.0


def peers_home() -> Path:
    """Return the folder of the other engines and the model, from benchmarks/peers/set_up.sh."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("PEERS_HOME") or cache / "paddle-grrm/peers")


def is_supported(engine: str) -> bool:
    """Return whether this processor computes what the engine's name says; emulated precisions are not compared."""
    from grrm_csrc.blas import is_native

    return all(is_native(precision) for mark, precision in ROUNDED.items() if mark in engine)


def answer(content: Any) -> None:
    """Answer whoever has started this process."""
    print(MARK + json.dumps(content), flush=True)


def answers_of(command: Sequence[object], threads: object, **environment: str) -> list[Any]:
    """Run a command to its end; returns its answers. Ends this process, with what the command said, where it fails."""
    words = list(map(str, command))
    own = _environment(threads) | environment
    done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S, env=own)
    if done.returncode:
        said = f"{done.stdout[-1500:]}{done.stderr[-3000:]}"
        sys.exit(f"{' '.join(words)} ended with status {done.returncode}:\n{said}")
    return [json.loads(line.removeprefix(MARK)) for line in done.stdout.splitlines() if line.startswith(MARK)]


def as_ranks(n_ranks: int, log_dir: Path) -> list[object]:
    """The beginning of a command that runs a script as so many ranks."""
    launcher = ["-m", "paddle.distributed.launch", "--nproc_per_node", n_ranks, "--log_dir", log_dir]
    return [sys.executable, *(launcher if n_ranks > 1 else [])]


def records_of_ranks(command: Sequence[object], n_ranks: int, folder: Path) -> list[dict[str, Any]]:
    """Run a script as ranks of one thread each; returns the record that every one leaves in `folder`/rank-*.json."""
    answers_of([*as_ranks(n_ranks, folder), *command], threads=1)
    records = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("rank-*.json")]
    if len(records) != n_ranks:
        sys.exit(f"{len(records)} of {n_ranks} ranks have left a record of {' '.join(map(str, command))}")
    return records


class WorkerEnded(Exception):
    """A worker's process is gone."""


class Worker:
    """An engine in a process that answers lines of JSON, one at a time."""

    def __init__(self, command: Sequence[object], threads: object = 2) -> None:
        self._command = list(map(str, command))
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=_environment(threads),
        )
        self._answer()

    def seconds(self, task: dict[str, Any]) -> float:
        """Return the engine's time. Raises WorkerEnded if its process is gone."""
        return float(self.ask(task)["seconds"])

    def ask(self, task: dict[str, Any]) -> dict[str, Any]:
        """All that it answers. Raises WorkerEnded where its process is gone."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the missing answer says it all
            self._process.stdin.write(json.dumps(task) + "\n")
            self._process.stdin.flush()
        return dict(json.loads(self._answer()))

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                return line.removeprefix(MARK)
        raise WorkerEnded(f"status {self._process.wait()} of {' '.join(self._command)}")


def _environment(threads: object) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
