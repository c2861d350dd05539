"""Reward servers as processes, also with a judge that takes its time, fails or dies; and what a request costs one."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
from support.rl_processes import ROOT, environment
from support.stopped_clock import PATIENCE_S, cpu_seconds_of

SCRIPT = ROOT / "reward_server/reward_server.py"
Served = Iterator[tuple[subprocess.Popen[str], str]]


@contextmanager
def reward_server(*options: str, stderr: int = subprocess.DEVNULL, **variables: str) -> Served:
    """The real server and its URL, on a free port unless the options say otherwise."""
    with serving([str(SCRIPT), "--port", "0", *options], stderr, **variables) as served:
        yield served


@contextmanager
def judged_by(
    function: str, options: Mapping[str, Any], variables: Mapping[str, str] | None = None, **settings: Any
) -> Served:
    """The real server with a judge of judges.py, its options, and further settings of the server."""
    judge = {"judge": f"{Path(__file__).with_name('judges.py')}:{function}", "judge_options": options}
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump({"port": 0, **judge, **settings}, file)
        file.flush()
        with serving([str(SCRIPT), "--config", file.name], **(variables or {})) as served:
            yield served


def slow_server(takes: float | Path, *, variables: Mapping[str, str] | None = None, **settings: Any) -> Any:
    """The server whose judge `takes` seconds for a call, or for as long as a file is there."""
    options = {"takes": str(takes) if isinstance(takes, Path) else takes}
    return judged_by("slow", options, variables, **settings)


def groups_judged(url: str) -> float:
    """How many groups a server has judged."""
    counts = [line.split() for line in requests.get(f"{url}/metrics", timeout=PATIENCE_S).text.splitlines()]
    return sum(float(words[1]) for words in counts if words[0] == "grrm_groups_total")


@contextmanager
def serving(command: list[str], stderr: int = subprocess.DEVNULL, **variables: str) -> Served:
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


def peak_bytes(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def cost(process, url, path, body):
    """(status, growth, seconds, wait) of a request, as `cost_during` has them."""

    def post():
        headers = {"Content-Type": "application/json"}
        return requests.post(url + path, data=body, headers=headers, timeout=PATIENCE_S).status_code

    return cost_during(process, url, post)


def cost_during(process, url, act):
    """(`act()`, growth of the peak in bytes, seconds until it ends, most that pass while a probe waits for its answer).

    The seconds are those of CPU time that the server spends.
    """
    before, ended, waits = peak_bytes(process), threading.Event(), [0.0]

    def probe():
        while not ended.wait(0.02):
            start = cpu_seconds_of(process.pid)
            requests.get(f"{url}/healthz", timeout=PATIENCE_S)
            waits.append(cpu_seconds_of(process.pid) - start)

    prober = threading.Thread(target=probe)
    prober.start()
    start = cpu_seconds_of(process.pid)
    try:
        done = act()
        seconds = cpu_seconds_of(process.pid) - start
    finally:
        ended.set()
        prober.join()
    return done, peak_bytes(process) - before, seconds, max(waits)
