"""Learned metrics as persistent worker processes, because their dependencies conflict with ours.

Each metric runs in its own environment (`grrm scorer install`), is started once, and serves many batches.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grrm.errors import UserError
from grrm.http_client.exchange import clean_text
from grrm.rewards.worker import Worker, WorkerFailure

REST_S = 60.0
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
    scale: Callable[[float], float] = lambda number: 10 * number


METRIC_KINDS: Mapping[str, MetricKind] = {
    "comet": MetricKind(
        "COMET",
        "comet",
        ("unbabel-comet>=2.2.7",),
        "Unbabel/wmt22-comet-da",
        "give a checkpoint file or a model's name",
        True,
    ),
    "cometkiwi": MetricKind(
        "CometKiwi",
        "comet",
        ("unbabel-comet>=2.2.7",),
        "Unbabel/wmt22-cometkiwi-da",
        "give a checkpoint file, or accept the model's licence on its hub and log in there",
        False,
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
    ),
}


def environment_of(name: str) -> Path:
    """Default folder of a metric's environment for `grrm scorer install`: `.venv-NAME` in the current folder."""
    return Path(f".venv-{name}")


def install_command(name: str, folder: Path) -> str:
    """The command line that makes the environment, for people."""
    return shlex.join(["grrm", "scorer", "install", name, "--folder", str(folder)])


class MetricWorker(Worker):
    """The process of one metric.

    After a failure it is started again at once, after further ones in a row when it has rested 1, 3, 7 … times REST_S:
    each start loads the model. The constructor raises UserError for a missing environment or model.
    """

    def __init__(self, name: str, environment: Path, model: str | None = None, batch_size: int = 16) -> None:
        self.kind, self._name, self._environment = METRIC_KINDS[name], name, environment
        interpreter = environment / "bin" / "python"
        if not interpreter.is_file():
            raise UserError(f"{self.kind.title} has no environment at '{environment}': {self.how_to_install}")
        self.model = model or self.kind.default_model
        if self.model is None:
            raise UserError(f"{self.kind.title} needs a model: {self.kind.model_remedy}")
        # Isolated, so that neither our packages nor the user's PYTHONPATH are seen there.
        super().__init__([str(interpreter.absolute()), "-I", str(PROGRAM), name, str(self.model), str(batch_size)])
        self._n_failed, self._rests_until = 0, 0.0

    @property
    def how_to_install(self) -> str:
        """The remedy if its environment is missing or incomplete."""
        return f"create it with `{install_command(self._name, self._environment)}`"

    def score(self, rows: Sequence[Row], deadline_s: float) -> list[float]:
        """One value of the metric per row, order kept, NaN included. Raises WorkerFailure."""
        now = time.monotonic()
        if self._process is None and now < self._rests_until:
            cause = f"it failed {self._n_failed} times in a row and rests for {self._rests_until - now:.0f} s"
            raise WorkerFailure(cause)
        try:
            scores = self._scores(rows, now + deadline_s)
        except WorkerFailure:
            if self._process is None:
                self._rests_until = time.monotonic() + REST_S * (2.0**self._n_failed - 1)
                self._n_failed += 1
            raise
        self._n_failed = 0
        return scores

    def _scores(self, rows: Sequence[Row], until: float) -> list[float]:
        self.start(until - time.monotonic())
        clean = [[None if text is None else clean_text(text) for text in row] for row in rows]
        scores = self.ask({"rows": clean}, until - time.monotonic()).get("scores")
        if isinstance(scores, list) and len(scores) == len(rows):
            return [float(score) for score in scores]
        self.close()
        n_scores = len(scores) if isinstance(scores, list) else 0
        raise WorkerFailure(f"it answered {n_scores} scores for {len(rows)} rows")
