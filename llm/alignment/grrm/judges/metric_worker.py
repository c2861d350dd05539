"""Learned metrics as persistent worker processes, because their dependencies conflict with ours.

Each metric runs in its own environment (`grrm scorer install`), is started once, and serves many batches.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO

from grrm.errors import UserError

PROGRAM = Path(__file__).parent / "programs" / "metric_program.py"
Row = tuple[str, str, "str | None"]  # source, translation, reference


@dataclass(frozen=True, slots=True)
class MetricKind:
    """Properties of a learned metric.

    `package` is imported to check that an environment is complete, `requirements` are installed there by pip.
    `needs_reference` is None if a reference is optional. `scale` maps the metric's value to 0 to 10.
    """

    title: str
    package: str
    requirements: tuple[str, ...]
    default_model: str | None
    model_remedy: str
    needs_reference: bool | None
    scale: Callable[[float], float]


METRIC_KINDS: Mapping[str, MetricKind] = {
    "comet": MetricKind(
        "COMET",
        "comet",
        ("unbabel-comet>=2.2.7",),
        "Unbabel/wmt22-comet-da",
        "give a checkpoint file or a model's name",
        True,
        lambda number: 10 * number,
    ),
    "cometkiwi": MetricKind(
        "CometKiwi",
        "comet",
        ("unbabel-comet>=2.2.7",),
        "Unbabel/wmt22-cometkiwi-da",
        "give a checkpoint file, or accept the model's licence on its hub and log in there",
        False,
        lambda number: 10 * number,
    ),
    "metricx": MetricKind(
        "MetricX",
        "transformers",
        ("torch", "transformers>=4.44,<5", "sentencepiece", "protobuf"),
        "google/metricx-24-hybrid-large-v2p6",
        "give a folder or a model's name, with its tokenizer behind a + where that is another one than google/mt5-xl",
        None,
        lambda number: 10 * (1 - number / 25),  # an error from 0 to 25
    ),
    "bleurt": MetricKind(
        "BLEURT",
        "bleurt",
        ("tensorflow", "tf_keras", "bleurt @ git+https://github.com/google-research/bleurt.git"),
        None,
        "give the folder of a checkpoint, for example of https://storage.googleapis.com/bleurt-oss-21/BLEURT-20.zip",
        True,
        lambda number: 10 * number,
    ),
}


class WorkerFailure(Exception):
    """A metric's process returned no scores: a timeout (`is_late`), a crash or an error. The message is the cause."""

    def __init__(self, cause: str, is_late: bool = False) -> None:
        super().__init__(cause)
        self.is_late = is_late


def environment_of(name: str) -> Path:
    """Default folder of a metric's environment for `grrm scorer install`: `.venv-NAME` in the current folder."""
    return Path(f".venv-{name}")


def install_command(name: str, folder: Path) -> str:
    """The command line that makes the environment, for people."""
    return shlex.join(["grrm", "scorer", "install", name, "--folder", str(folder)])


class MetricWorker:
    """The process of one metric, started on first use, and restarted after a crash or a timeout.

    A timeout kills the process, which would block the next call otherwise. Not thread-safe. The constructor raises
    UserError for a missing environment, and for a metric without a model.
    """

    def __init__(self, name: str, environment: Path, model: str | None = None, batch_size: int = 16) -> None:
        self.kind, self._name, self._environment = METRIC_KINDS[name], name, environment
        self._interpreter = environment / "bin" / "python"
        if not self._interpreter.is_file():
            raise UserError(f"{self.kind.title} has no environment at '{environment}': {self.how_to_install}")
        self.model = model or self.kind.default_model
        if self.model is None:
            raise UserError(f"{self.kind.title} needs a model: {self.kind.model_remedy}")
        self._batch_size = batch_size
        self._process: _Process | None = None
        self._n_requests = 0

    @property
    def how_to_install(self) -> str:
        """The remedy if its environment is missing or incomplete."""
        return f"create it with `{install_command(self._name, self._environment)}`"

    def start(self, deadline_s: float) -> None:
        """Load the model, unless it is loaded. Raises WorkerFailure if that fails or times out."""
        if self._process is not None and self._process.is_alive:
            return
        self.close()
        # Isolated, so that neither our packages nor the user's PYTHONPATH are seen there.
        command = [str(self._interpreter.absolute()), "-I", str(PROGRAM), self._name, str(self.model)]
        self._process = _Process([*command, str(self._batch_size)])
        answer = self._receive(time.monotonic() + deadline_s)
        if answer.get("ready") is not True:
            self.close()
            raise WorkerFailure(str(answer.get("error", "it does not say that it is ready")))

    def score(self, rows: Sequence[Row], deadline_s: float) -> list[float]:
        """One value of the metric per row, order kept, NaN included. Raises WorkerFailure."""
        until = time.monotonic() + deadline_s
        self.start(deadline_s)
        assert self._process is not None
        self._n_requests += 1
        self._process.send({"id": self._n_requests, "rows": [list(row) for row in rows]})
        answer = self._receive(until)
        scores = answer.get("scores")
        if answer.get("id") == self._n_requests and isinstance(scores, list) and len(scores) == len(rows):
            return [float(score) for score in scores]
        if "error" in answer:
            raise WorkerFailure(str(answer["error"]))
        self.close()
        n_scores = len(scores) if isinstance(scores, list) else 0
        raise WorkerFailure(f"it answered {n_scores} scores for {len(rows)} rows")

    def close(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _receive(self, until: float) -> dict[str, Any]:
        assert self._process is not None
        try:
            return self._process.receive(max(until - time.monotonic(), 0.0))
        except WorkerFailure:
            self.close()
            raise


class _Process:
    """A process with a protocol of JSON lines; it ends with this one."""

    def __init__(self, command: Sequence[str]) -> None:
        self._log = tempfile.TemporaryFile(prefix="grrm-metric-")  # noqa: SIM115 - as long as the process
        self._popen = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, start_new_session=True
        )
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._end = weakref.finalize(self, _kill, self._popen)
        assert self._popen.stdout is not None
        threading.Thread(target=_read, args=(self._popen.stdout, self._lines), daemon=True).start()

    @property
    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def send(self, message: Mapping[str, Any]) -> None:
        """Write a line; if the process no longer reads, the missing answer is noticed later."""
        assert self._popen.stdin is not None
        with contextlib.suppress(OSError):
            self._popen.stdin.write(json.dumps(message).encode("ascii") + b"\n")
            self._popen.stdin.flush()

    def receive(self, seconds: float) -> dict[str, Any]:
        """The next line. Raises WorkerFailure when there is none in time, the process ended, or it is no JSON."""
        try:
            line = self._lines.get(timeout=seconds)
        except Empty:
            raise WorkerFailure(f"it did not answer within {seconds:.3g} s", is_late=True) from None
        try:
            answer = None if line is None else json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise WorkerFailure(self._last_words() if line is None else "it answered what is no JSON object")
        return answer

    def kill(self) -> None:
        """End the process and all that it started."""
        self._end()
        self._log.close()

    def _last_words(self) -> str:
        status = self._popen.wait()
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().decode("utf-8", "replace").splitlines() if line.strip()]
        return f"it ended with status {status}" + (f" ({lines[-1][:300]})" if lines else "")


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):  # a line that was never read
                stream.close()


def _read(stream: BinaryIO, lines: SimpleQueue[bytes | None]) -> None:
    """Every whole line, then None."""
    with contextlib.suppress(OSError, ValueError):  # closed beside this thread
        for line in stream:
            if line.endswith(b"\n"):
                lines.put(line)
    lines.put(None)
