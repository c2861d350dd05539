"""A clock that goes on only when a test says so, and the CPU time of another process: neither feels a busy machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

PATIENCE_S = 120.0  # for what must happen, however slowly


class StoppedClock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    perf_counter = monotonic

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def stop_clock(monkeypatch: pytest.MonkeyPatch, *modules: str) -> StoppedClock:
    """The clock by which these modules live until the test ends."""
    clock = StoppedClock()
    for module in modules:
        monkeypatch.setattr(f"{module}.time", clock)
    return clock


def stop_client_clock(monkeypatch: pytest.MonkeyPatch) -> StoppedClock:
    """The clock of all clients of servers: their pauses take no time, and nothing else goes on."""
    modules = (f"grrm.http_client.{name}" for name in ("client", "exchange", "pool"))
    clock = stop_clock(
        monkeypatch, *modules, "grrm.rewards.client", "grrm.engine.openai_text", "grrm.engine.server_engine"
    )
    monkeypatch.setattr("grrm.http_client.client.sleep_unless", lambda stop, seconds: clock.sleep(seconds))
    return clock


def eventually(condition: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Wait until `condition()` holds."""
    gives_up = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < gives_up, "waited in vain"
        time.sleep(0.005)


def cpu_seconds_of(pid: int) -> float:
    """The CPU time that all threads of a process have spent."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
