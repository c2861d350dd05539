"""The run's own record of its metrics: one JSON object per logged step in `metrics.jsonl`, whatever tracker is used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grrm.tracking.step_lines import StepLines, read_step_lines

FILE_NAME = "metrics.jsonl"
VERDICT_FILE = "verdict.json"  # beside it, at the end of an RL run: whether training helped


class MetricsLog:
    """Writes `metrics.jsonl` in `folder`. Only rank 0 should own one.

    `first_step` is the first step this run will log: lines of that step or later, left by a run that was
    interrupted after its last checkpoint, are removed.
    """

    def __init__(self, folder: Path, first_step: int = 0) -> None:
        self._lines = StepLines(Path(folder) / FILE_NAME, first_step)

    @property
    def path(self) -> Path:
        """The file of the lines."""
        return self._lines.path

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Append one line; a value that is not finite is written as null, with a warning."""
        self._lines.append([{"step": int(step), **{key: value for key, value in metrics.items() if key != "step"}}])


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """All logged steps in order; an empty list when nothing was logged. Raises ValueError on a damaged file."""
    path = Path(folder) / FILE_NAME
    return list(read_step_lines(path)) if path.exists() else []
