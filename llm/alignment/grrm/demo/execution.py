"""Runs stages one after another: reuses what is finished, shows progress, and reports a failure in one sentence."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from grrm.demo.processes import Child, tail
from grrm.demo.progress import StageLine, last_step
from grrm.demo.stages import SERVER_PLACEHOLDER, Marks, Stage, fingerprint_of, flat_name, missing_outputs
from grrm.tracking.console import format_seconds

_POLL_S = 0.3
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
    poll_s: float = _POLL_S

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
            label = f"[{position}/{len(stages)}{_remaining(stages, position, seconds)}] {stage.title}"
            fingerprint = fingerprint_of(stage, self.placeholders)
            if self.marks.is_done(stage, fingerprint):
                self._say(f"{label}: finished earlier")
            else:
                spent_s = self._run_stage(stage, fingerprint, label)
                self._say(f"{label}: done in {format_seconds(spent_s)}{self._result(stage)}")
            mark = self.marks.done(stage.name)
            seconds[stage.name] = mark.seconds if mark else 0.0
        return seconds

    def _run_stage(self, stage: Stage, fingerprint: str, label: str) -> float:
        url = self.server_url(stage.reward_server) if stage.needs_server else ""
        earlier_s = self.marks.begin(stage, fingerprint)
        started_s = time.monotonic()
        try:
            command = [argument.replace(SERVER_PLACEHOLDER, url) for argument in stage.command]
            with Child(command, self.log_of(stage), cwd=self.root, env=self.env) as child:
                self._watch(stage, child, label)
            if missing := missing_outputs(stage):
                raise self._failure(stage, child, f"ended well but did not write {missing[0]}")
        finally:
            spent_s = earlier_s + time.monotonic() - started_s
            self.marks.interrupt(stage, fingerprint, spent_s)
        self.marks.finish(stage, fingerprint, spent_s)
        return spent_s

    def _watch(self, stage: Stage, child: Child, label: str) -> None:
        deadline = time.monotonic() + stage.timeout_s
        with StageLine(self.console, label) as line:
            while (status := child.poll()) is None:
                if time.monotonic() > deadline:
                    raise self._failure(stage, child, f"was stopped after {format_seconds(stage.timeout_s)}")
                line.show(last_step(stage.metrics, stage.total_steps, stage.shown, child.output(4000)))
                time.sleep(self.poll_s)
        if status != 0:
            ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            raise self._failure(stage, child, ended)

    def _result(self, stage: Stage) -> str:
        lines = tail(self.log_of(stage).read_text(encoding="utf-8", errors="replace"), 1)
        return f": {lines[0]}" if stage.ends_with_result and lines else ""

    def _failure(self, stage: Stage, child: Child, happened: str) -> StageFailure:
        lines = tail(child.output())
        lines += [line for line in _rank_errors(stage.folder) if line not in lines]
        sentence = f"stage '{stage.name}' {happened}: read {child.log}, mend the cause and run it again to resume"
        return StageFailure(sentence, lines)

    def _say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


def _remaining(stages: Sequence[Stage], position: int, seconds: Mapping[str, float]) -> str:
    """Time that stages take from this one on: as planned, at the pace of those that are done, more and more."""
    planned, spent_s = [stage.planned_s for stage in stages], sum(seconds.values())
    pace = (spent_s + _TRUSTED_S) / (sum(planned[: position - 1]) + _TRUSTED_S)
    remaining_s = pace * sum(planned[position - 1 :])
    return f", about {format_seconds(remaining_s)} left" if remaining_s else ""


def child_environment() -> dict[str, str]:
    """The environment of stages: output unbuffered, UTF-8 and without colours, whatever the terminal is."""
    return os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1", "TERM": "dumb"}


def _rank_errors(folder: Path) -> list[str]:
    """The "error: ..." lines of the ranks whose output the launcher kept to itself."""
    lines = []
    for path in sorted(folder.glob("rank-logs/workerlog.*")):
        text = path.read_text(encoding="utf-8", errors="replace")
        lines += [line for line in tail(text, 50) if line.startswith("error:")]
    return list(dict.fromkeys(lines))
