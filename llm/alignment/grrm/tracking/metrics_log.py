"""The run's own record of its metrics: one JSON object per logged step in `metrics.jsonl`, whatever tracker is used.

A run that stops after step 130 but resumes from the checkpoint of step 100 repeats steps 101 to 130; the lines it
wrote for them the first time are removed when the file is opened again, so every step appears once.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from grrm.data.atomic import atomic_path, json_bytes
from grrm.errors import UserError

logger = logging.getLogger(__name__)


class StepLines:
    """Appends objects that carry a "step" to a JSON-lines file.

    `first_step` is the first step this run will write: existing lines of that step or later are removed, and so is
    a last line that was cut short. A file is opened at the first write, so a run that never writes leaves none.
    """

    def __init__(self, path: Path, first_step: int = 0) -> None:
        self.path = path
        self._reported: set[str] = set()
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            _drop_from(path, first_step)

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write one line per record; NaN and infinities become null, with a warning of each field's first."""
        values = [finite(record, reported=self._reported) for record in records]
        lines = [json_bytes(value, allow_nan=False) for value in values]
        with self.path.open("ab") as file:
            file.write(b"".join(lines))


def read_step_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a step-lines file in order; a last line that was cut short is left out.

    Raises UserError naming file and line when any other line is not a JSON object, as a crashed machine may leave it.
    """
    return (record for _, record in _lines_and_records(path))


def _lines_and_records(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):
                yield line, _parse(line, path, number)


def finite(value: Any, field: str = "", reported: set[str] | None = None) -> Any:
    """`value` with every NaN or infinity, however deep, replaced by None; numpy scalars become Python's.

    A warning names each such field once; `reported` holds those of earlier calls.
    """
    reported = set() if reported is None else reported
    if isinstance(value, Mapping):
        return {key: finite(item, f"{field}.{key}" if field else str(key), reported) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item, field, reported) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        if field not in reported:
            reported.add(field)
            logger.warning("%s is %s: written as null, now and later", field, value)
        return None
    return value


def _parse(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise UserError(f"{path}:{number} is not JSON ({error}): remove the line") from error
    if not isinstance(record, dict) or not isinstance(record.get("step"), int):
        raise UserError(f"{path}:{number} is not a JSON object with a step: remove the line")
    return record


def _drop_from(path: Path, first_step: int) -> None:
    earlier = (line for line, record in _lines_and_records(path) if record["step"] < first_step)  # may exceed memory
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.writelines(earlier)


FILE_NAME = "metrics.jsonl"
VERDICT_FILE = "verdict.json"  # beside it, at the end of an RL run: whether training helped


class MetricsLog(StepLines):
    """Writes `metrics.jsonl` in `folder`. Only rank 0 should own one.

    `first_step` is the first step this run will log: lines of that step or later, left by a run that was
    interrupted after its last checkpoint, are removed.
    """

    def __init__(self, folder: Path, first_step: int = 0) -> None:
        super().__init__(Path(folder) / FILE_NAME, first_step)

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Append one line; a value that is not finite is written as null, with a warning the first time."""
        self.append([{"step": int(step), **{key: value for key, value in metrics.items() if key != "step"}}])


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """All logged steps in order; an empty list when nothing was logged. Raises UserError on a damaged file."""
    path = Path(folder) / FILE_NAME
    return list(read_step_lines(path)) if path.exists() else []
