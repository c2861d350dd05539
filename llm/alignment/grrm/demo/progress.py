"""Progress of a running stage, read from its metrics or its output, and the line that shows it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from grrm.tracking.console import format_seconds

_FRACTION = re.compile(r"(?<![\d/.])(\d+)/(\d+)(?![\d/.])")
_SECONDS_BETWEEN_LINES = 10.0
_LONGEST_SILENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class StepSeen:
    """The last step a stage reported, with its numbers; `total` is None when unknown."""

    step: int
    total: int | None
    numbers: Mapping[str, float] = field(default_factory=dict)


def last_step(metrics: Path | None, total: int | None, shown: Sequence[str], output: str) -> StepSeen | None:
    """The last line of `metrics` (a metrics.jsonl), else the last "12/40" in `output`, else None.

    Numbers are those of `shown` that were logged, each from the latest step that has it.
    """
    records = _last_records(metrics) if metrics is not None else []
    if records:
        numbers = {}
        for key in shown:
            values = [record[key] for record in records if isinstance(record.get(key), (int, float))]
            if values:
                numbers[key] = float(values[-1])
        return StepSeen(int(records[-1]["step"]), total, numbers)
    fractions = _FRACTION.findall(output)
    if fractions:
        return StepSeen(int(fractions[-1][0]), int(fractions[-1][1]))
    return None


def _last_records(path: Path, last_bytes: int = 16_000) -> list[dict[str, Any]]:
    """The records at the end of a metrics file that is being written to; half a line is not a record yet."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - last_bytes))
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    records = []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue  # the first line may be cut by the window
        if isinstance(record, dict) and isinstance(record.get("step"), int):
            records.append(record)
    return records


class StageLine:
    """One live line for a running stage on a terminal; elsewhere plain lines, few enough for a log.

    Off a terminal a line is printed at the start, and then at most every ten seconds: when another 10 % of the steps
    are done, or after a minute.
    """

    def __init__(self, console: Console, label: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.console, self.label, self._clock = console, label, clock
        self._started_s = self._line_s = clock()
        self._line_step = 0
        self._first: tuple[int, float] | None = None
        self._stale_step: int | None = None
        self._is_new = True
        self._live: Live | None = None

    def __enter__(self) -> StageLine:
        if self.console.is_terminal:
            self._live = Live(Text(self.label), console=self.console, transient=True, refresh_per_second=4)
            self._live.start()
        else:
            self._print(f"{self.label} ...")
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, seen: StepSeen | None) -> None:
        """Bring the line up to date."""
        if self._is_new:  # a step that is there already was made by an earlier attempt and tells nothing about the pace
            self._is_new, self._stale_step = False, seen.step if seen else None
        if seen is not None and self._first is None and seen.step != self._stale_step:
            self._first = (seen.step, self._clock())
        if self._live is not None:
            self._live.update(Text(self._text(seen), no_wrap=True, overflow="ellipsis"))
        elif self._is_due(seen):
            self._line_s, self._line_step = self._clock(), seen.step if seen else 0
            self._print(self._text(seen))

    def _is_due(self, seen: StepSeen | None) -> bool:
        waited_s = self._clock() - self._line_s
        if waited_s < _SECONDS_BETWEEN_LINES or waited_s >= _LONGEST_SILENCE_S:
            return waited_s >= _LONGEST_SILENCE_S
        return bool(seen and seen.total and (seen.step - self._line_step) * 10 >= seen.total)

    def _text(self, seen: StepSeen | None) -> str:
        if seen is None:
            return f"{self.label}  {format_seconds(self._clock() - self._started_s)}"
        steps = f"step {seen.step}/{seen.total}" if seen.total else f"step {seen.step}"
        numbers = [f"{key} {value:.4g}" for key, value in seen.numbers.items()]
        return "  ".join([self.label, steps, *numbers, *self._remaining(seen)])

    def _remaining(self, seen: StepSeen) -> list[str]:
        if self._first is None or not seen.total or seen.step <= self._first[0] or seen.step >= seen.total:
            return []
        pace_s = (self._clock() - self._first[1]) / (seen.step - self._first[0])
        return [f"{format_seconds(pace_s * (seen.total - seen.step))} left"]

    def _print(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)
