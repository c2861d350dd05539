"""COMET and BLEURT as subprocesses: their requirements and ours exclude each other, so each has its own environment."""

from __future__ import annotations

import json
import math
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grrm.errors import UserError

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True, slots=True)
class ScorerKind:
    """What there is to know about a scorer: its program, the package it needs, how to get that, and its model."""

    title: str
    program: str
    package: str
    requirements: str
    default_model: str | None
    model_remedy: str


SCORERS = {
    "comet": ScorerKind(
        "COMET",
        "comet_program.py",
        "comet",
        "'unbabel-comet>=2.2.7'",
        "Unbabel/wmt22-comet-da",
        "give a checkpoint file or a model's name",
    ),
    "bleurt": ScorerKind(
        "BLEURT",
        "bleurt_program.py",
        "bleurt",
        "tensorflow tf_keras 'bleurt @ git+https://github.com/google-research/bleurt.git'",
        None,
        "give the folder of a checkpoint, for example of https://storage.googleapis.com/bleurt-oss-21/BLEURT-20.zip",
    ),
}


@dataclass(frozen=True, slots=True)
class NeuralScorer:
    """One scorer in the environment `environment` (a venv's folder), with `model`; runs at most `deadline_s` seconds.

    Raises UserError, when built, if there is no such environment, with the command that creates it, or no model.
    """

    name: str
    environment: Path
    model: str | None = None
    deadline_s: float = 7200.0

    def __post_init__(self) -> None:
        if not self._interpreter.is_file():
            raise UserError(f"{self._kind.title} has no environment at '{self.environment}': {self._how_to_create}")
        if self._model is None:
            raise UserError(f"{self._kind.title} needs a model: {self._kind.model_remedy}")

    @property
    def _kind(self) -> ScorerKind:
        return SCORERS[self.name]

    @property
    def _model(self) -> str | None:
        return self.model or self._kind.default_model

    @property
    def _interpreter(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def _how_to_create(self) -> str:
        folder = shlex.quote(str(self.environment))
        return f"create it with `python3 -m venv {folder} && {folder}/bin/pip install {self._kind.requirements}`"

    def score(self, sources: Sequence[str], hypotheses: Sequence[str | None], references: Sequence[str]) -> list[float]:
        """One score per row, order kept; a missing translation is scored as an empty one.

        Raises UserError when the program fails, does not end in time, or does not answer with one finite number per
        row.
        """
        request = {
            "model": self._model,
            "sources": list(sources),
            "hypotheses": [text or "" for text in hypotheses],
            "references": list(references),
        }
        with tempfile.TemporaryDirectory(prefix="grrm-scorer-") as folder:
            request_path, answer_path = Path(folder, "request.json"), Path(folder, "answer.json")
            request_path.write_text(json.dumps(request), encoding="utf-8")
            self._run([str(request_path), str(answer_path)], Path(folder, "log"))
            return self._read(answer_path, len(sources))

    def _run(self, paths: Sequence[str], log: Path) -> None:
        # Isolated, so that neither our packages nor the user's PYTHONPATH are seen there.
        command = [str(self._interpreter.absolute()), "-I", str(PROGRAMS / self._kind.program), *paths]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
            try:
                status = process.wait(self.deadline_s)
            except subprocess.TimeoutExpired:
                raise UserError(
                    f"{self._kind.title} did not end within {self.deadline_s:g} s: allow it more time or fewer rows"
                ) from None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        if status:
            raise self._failure(log.read_text(encoding="utf-8", errors="replace"), status)

    def _failure(self, log: str, status: int) -> UserError:
        lines = [line.strip() for line in log.splitlines() if line.strip()]
        cause = lines[-1][:300] if lines else f"exit status {status}"
        if cause.startswith("ModuleNotFoundError"):
            return UserError(
                f"{self._kind.title} is not whole at '{self.environment}' ({cause}): {self._how_to_create}"
            )
        return UserError(
            f"{self._kind.title} failed with model '{self._model}' ({cause}): correct that, or "
            f"{self._kind.model_remedy}"
        )

    def _read(self, path: Path, n_rows: int) -> list[float]:
        try:
            scores = json.loads(path.read_text(encoding="utf-8"))["scores"]
            numbers = [float(score) for score in scores]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"{self._kind.title} ended without an answer that can be read: {self._how_to_create}"
            ) from error
        if len(numbers) != n_rows or not all(map(math.isfinite, numbers)):
            raise UserError(
                f"{self._kind.title} gave {sum(map(math.isfinite, numbers))} finite scores for {n_rows} rows: leave it "
                "out, or use another model"
            )
        return numbers
