"""Reward servers as processes: the real script, and one whose judge fails on demand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.rl_processes import ROOT, environment

SCRIPT = ROOT / "reward_server/reward_server.py"
FAULTY = """
import sys
from grrm.gqm.groups import Status, Verdict
from grrm.judges.text_metric import TextMetricJudge
from grrm_reward_server.main import serve
from grrm_reward_server.settings import Settings

fault, group_id = sys.argv[1:]


class FaultyJudge(TextMetricJudge):
    def judge(self, groups):
        verdicts = super().judge(groups)
        for i, group in enumerate(groups):
            if group.group_id == group_id:
                if fault == "raise":
                    raise RuntimeError("out of memory")
                verdicts[i] = Verdict.unscored(len(group.candidates), Status.JUDGE_UNPARSABLE)
        return verdicts


serve(Settings(port=0), FaultyJudge(), None)
"""

MORTAL = """
import os, signal, sys
from grrm.judges.text_metric import TextMetricJudge
from grrm_reward_server.main import serve
from grrm_reward_server.settings import Settings

marker, prefix = sys.argv[1:]


class MortalJudge(TextMetricJudge):
    def judge(self, groups):
        if any(group.group_id.startswith(prefix) for group in groups):
            try:
                open(marker, "x").close()
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().judge(groups)


serve(Settings(port=0), MortalJudge(), None)
"""


@contextmanager
def reward_server(
    *options: str, stderr: int = subprocess.DEVNULL, **variables: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The real server and its URL, on a free port unless the options say otherwise."""
    with serving([str(SCRIPT), "--port", "0", *options], stderr, **variables) as served:
        yield served


@contextmanager
def faulty_server(fault: str, group_id: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server that judges by chrF, but leaves one group "unscored" or fails with a "raise" on it."""
    with serving(["-c", FAULTY, fault, group_id]) as served:
        yield served


@contextmanager
def mortal_server(marker: Path, prefix: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server that judges by chrF. It is killed (SIGKILL) at the first group whose id begins with `prefix`.

    Of several servers with the same `marker`, a file, only the first that gets such a group is; none where it is there.
    """
    with serving(["-c", MORTAL, str(marker), prefix]) as served:
        yield served


@contextmanager
def serving(
    command: list[str], stderr: int = subprocess.DEVNULL, **variables: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server's process and its URL, once it listens; it is killed at the end if it is still there."""
    with subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment() | variables
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("listening on "), process.stderr and process.stderr.read()
            yield process, line.split()[-1]
        finally:
            process.kill()


def error_lines(logs: Path) -> list[list[str]]:
    """The `error:` lines of every rank, in rank order."""
    files = sorted(logs.glob("workerlog.*"))
    return [
        [line for line in path.read_text(errors="replace").splitlines() if line.startswith("error:")] for path in files
    ]
