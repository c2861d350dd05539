"""Recomputes finished runs in a process of its own, so that nothing other tests have loaded or left behind takes part.

Runs [[folder, argument file, settings], ...] as JSON on stdin; of each {"errors": ..., "seen": ...} on stdout.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from oracle.rl import RlOracle
from oracle.run_files import Run


@dataclass(frozen=True)
class Recomputed:
    """The largest relative error of each quantity, and what happened in the run."""

    errors: dict[str, float]
    seen: dict[str, float]


def recompute(runs: list[Run]) -> list[Recomputed]:
    """Recompute `runs` in one process."""
    jobs = [[str(run.folder), str(run.argument_file), run.settings] for run in runs]
    done = subprocess.run(
        [sys.executable, "-m", "oracle.recompute"],
        input=json.dumps(jobs), capture_output=True, text=True, timeout=240, check=False, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return [Recomputed(**one) for one in json.loads(done.stdout)]


def main() -> None:
    """Answer what is asked on stdin."""
    answers = []
    for folder, argument_file, settings in json.load(sys.stdin):
        oracle = RlOracle(Run(Path(folder), Path(argument_file), settings))
        answers.append({"errors": oracle.check().errors, "seen": oracle.seen})
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
