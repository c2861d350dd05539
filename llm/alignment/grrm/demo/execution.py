"""Runs stages one after another: reuses what is finished, shows progress, and reports a failure in one sentence."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from grrm.demo.processes import Child, tail
from grrm.demo.stages import SERVER_PLACEHOLDER, Marks, Stage, fingerprint_of, flat_name, missing_outputs
from grrm.tracking.console import format_seconds, line_is_due

_FRACTION = re.compile(r"(?<![\d/.])(\d+)/(\d+)(?![\d/.])")


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


def _last_records(path: Path) -> list[dict[str, Any]]:
    """The records at the end of a metrics file that is being written to; half a line is not a record yet."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 16_000))
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
    """One live line for a running stage on a terminal; elsewhere a line at the start, and where `line_is_due`.

    `position` is such as 1/12. `planned_s` is the time of the stage, `later_s` that of those behind it.
    """

    def __init__(
        self, console: Console, position: str, title: str, *, planned_s: float = 0.0, later_s: float = 0.0
    ) -> None:
        self.console, self.position, self.title = console, position, title
        self.planned_s, self.later_s = planned_s, later_s
        self._started_s = self._line_s = time.monotonic()
        self._line_step = 0
        self._first: tuple[int, float] | None = None
        self._last: tuple[int | None, float] = None, self._started_s
        self._is_new = True
        self._live: Live | None = None

    def __enter__(self) -> StageLine:
        if self.console.is_terminal:
            text = Text(self.label(None))
            self._live = Live(text, console=self.console, transient=True, refresh_per_second=4)
            self._live.start()
        else:
            say(self.console, f"{self.label(None)} ...")
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def label(self, own_s: float | None) -> str:
        """Position, time left of all stages and title. The stage needs `own_s` more, None: what is left of its plan."""
        if own_s is None:
            own_s = max(0.0, self.planned_s - (time.monotonic() - self._started_s))
        remaining_s = own_s + self.later_s if self.planned_s + self.later_s else 0.0
        remaining = f", about {format_seconds(remaining_s)} left" if remaining_s else ""
        return f"[{self.position}{remaining}] {self.title}"

    def show(self, seen: StepSeen | None) -> None:
        """Bring the line up to date."""
        if seen is not None and seen.step != self._last[0]:
            self._last = seen.step, time.monotonic()
            if self._first is None and not self._is_new:  # one that is there at once was made by an earlier attempt
                self._first = (seen.step, time.monotonic())
        self._is_new = False
        if self._live is not None:
            self._live.update(Text(self._text(seen), no_wrap=True, overflow="ellipsis"))
            return
        step, total = (seen.step, seen.total) if seen else (0, None)
        if line_is_due(time.monotonic() - self._line_s, step - self._line_step, total):
            self._line_s, self._line_step = time.monotonic(), step
            say(self.console, self._text(seen))

    def _text(self, seen: StepSeen | None) -> str:
        own_s, spent = self._remaining_s(seen), format_seconds(time.monotonic() - self._started_s)
        label = self.label(own_s)
        if seen is None:
            return f"{label}  {spent}"
        steps = f"step {seen.step}/{seen.total}" if seen.total else f"step {seen.step}"
        numbers = [f"{key} {value:.4g}" for key, value in seen.numbers.items()]
        return "  ".join([label, steps, *numbers, spent if own_s is None else f"{format_seconds(own_s)} left"])

    def _remaining_s(self, seen: StepSeen | None) -> float | None:
        if seen is None or self._first is None or not seen.total or not self._first[0] < seen.step < seen.total:
            return None
        pace_s = (self._last[1] - self._first[1]) / (seen.step - self._first[0])
        return max(0.0, pace_s * (seen.total - seen.step) - (time.monotonic() - self._last[1]))


POLL_S = 0.3
_TRUSTED_S = 120.0  # of stages before their pace counts for more than the plan


class StageFailure(Exception):
    """A stage did not finish: one sentence, and the last lines it printed."""

    def __init__(self, sentence: str, last_lines: Sequence[str]) -> None:
        super().__init__(sentence)
        self.last_lines = list(last_lines)


@dataclass(slots=True)
class StageRunner:
    """Runs stages in `root` and keeps marks and logs in `out`. `server_url` is called with the server's
    options for stages that need one.

    `placeholders` are passed to `fingerprint_of`.
    """

    out: Path
    root: Path
    console: Console
    server_url: Callable[[Sequence[str]], str]
    placeholders: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] | None = None

    @property
    def marks(self) -> Marks:
        """The marks of the stages that have started and finished."""
        return Marks(self.out / "stages")

    def log_of(self, stage: Stage) -> Path:
        """The file of the stage's output."""
        return self.out / "logs" / f"{flat_name(stage.name)}.log"

    def run(self, stages: Sequence[Stage]) -> dict[str, float]:
        """Run what is not done; returns the seconds of every stage, over all its attempts.

        Raises StageFailure at the first stage that fails. On any exception the running stage is stopped first.
        """
        seconds: dict[str, float] = {}
        for position, stage in enumerate(stages, 1):
            own_s, later_s = _expected(stages, position, seconds)
            line = StageLine(self.console, f"{position}/{len(stages)}", stage.title, planned_s=own_s, later_s=later_s)
            fingerprint = fingerprint_of(stage, self.placeholders)
            if self.marks.is_done(stage, fingerprint):
                say(self.console, f"{line.label(0.0)}: finished earlier")
            else:
                spent_s = self._run_stage(stage, fingerprint, line)
                say(self.console, f"{line.label(0.0)}: done in {format_seconds(spent_s)}{self._result(stage)}")
            mark = self.marks.done(stage.name)
            seconds[stage.name] = mark.seconds if mark else 0.0
        return seconds

    def _run_stage(self, stage: Stage, fingerprint: str, line: StageLine) -> float:
        url = self.server_url(stage.reward_server) if stage.needs_server else ""
        earlier_s = self.marks.begin(stage, fingerprint)
        started_s = time.monotonic()
        try:
            command = [argument.replace(SERVER_PLACEHOLDER, url) for argument in stage.command]
            with Child(command, self.log_of(stage), cwd=self.root, env=self.env) as child:
                self._watch(stage, child, line)
            if missing := missing_outputs(stage):
                raise self._failure(stage, child, f"ended well but did not write {missing[0]}")
        finally:
            spent_s = earlier_s + time.monotonic() - started_s
            self.marks.interrupt(stage, fingerprint, spent_s)
        self.marks.finish(stage, fingerprint, spent_s)
        return spent_s

    def _watch(self, stage: Stage, child: Child, line: StageLine) -> None:
        deadline = time.monotonic() + stage.timeout_s
        with line:
            while (status := child.poll()) is None:
                if time.monotonic() > deadline:
                    raise self._failure(stage, child, f"was stopped after {format_seconds(stage.timeout_s)}")
                line.show(last_step(stage.metrics, stage.total_steps, stage.shown, child.output(4000)))
                time.sleep(POLL_S)
        if status != 0:
            ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            raise self._failure(stage, child, ended)

    def _result(self, stage: Stage) -> str:
        lines = tail(self.log_of(stage).read_text(encoding="utf-8", errors="replace"), 1)
        return f": {lines[0]}" if stage.ends_with_result and lines else ""

    def _failure(self, stage: Stage, child: Child, happened: str) -> StageFailure:
        sentence = f"stage '{stage.name}' {happened}: read {child.log}, mend the cause and run it again to resume"
        return StageFailure(sentence, tail(child.output()))


def say(console: Console, text: str) -> None:
    """Print a line as it is, however long."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _expected(stages: Sequence[Stage], position: int, seconds: Mapping[str, float]) -> tuple[float, float]:
    """Time of a stage and of those behind it: as planned, at the pace of those that are done, more and more."""
    planned, spent_s = [stage.planned_s for stage in stages], sum(seconds.values())
    pace = (spent_s + _TRUSTED_S) / (sum(planned[: position - 1]) + _TRUSTED_S)
    return pace * planned[position - 1], pace * sum(planned[position:])


def child_environment() -> dict[str, str]:
    """The environment of stages: output unbuffered, UTF-8 and without colours, whatever the terminal is."""
    return os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1", "TERM": "dumb"}
