"""Child processes that are always stopped with everything they started, the demo's reward server among them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from grrm.errors import UserError
from grrm.http_client.client import HttpClient
from grrm.startup import end_with_parent

_GRACE_S = 15.0
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_PROBE_S = 2.0
SECONDS_BETWEEN_LOOKS = 1.0
READY_S = 120.0  # that a reward server may take


class Child:
    """A command running in its own process group, its output going to the end of `log`.

    Use as a context manager: on the way out the command and all its descendants are stopped.
    """

    def __init__(self, command: Sequence[str], log: Path, *, cwd: Path, env: Mapping[str, str] | None = None) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self.log_start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=None if env is None else dict(env),
                start_new_session=True,
                preexec_fn=end_with_parent,  # also of a demo that was killed
            )
        self._tree: set[tuple[int, str]] = set()
        self._looked_s = time.monotonic()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def poll(self) -> int | None:
        """Exit status, None while it runs. Call it regularly: it also takes note of the descendants."""
        if time.monotonic() - self._looked_s >= SECONDS_BETWEEN_LOOKS:
            self._looked_s = time.monotonic()
            self._tree |= descendants(self.process.pid)
        return self.process.poll()

    def output(self, last_bytes: int = 64_000) -> str:
        """The end of what this run has written so far."""
        with self.log.open("rb") as file:
            file.seek(max(self.log_start, self.log.stat().st_size - last_bytes))
            return file.read().decode("utf-8", errors="replace")

    def stop(self, grace_s: float = _GRACE_S) -> None:
        """Ask the whole tree to end (SIGTERM), then kill what is left after `grace_s` seconds.

        Launchers put their workers into sessions of their own, out of reach of a signal to our process group, so the
        tree is written down while it can be seen. On systems without /proc only the process group is reached.
        Interrupts wait: an impatient second Ctrl-C would otherwise leave processes behind.
        """
        with _handled((signal.SIGINT, *_ENDING), signal.SIG_IGN):
            self._stop(grace_s)

    def _stop(self, grace_s: float) -> None:
        self._tree |= descendants(self.process.pid)
        deadline = time.monotonic() + grace_s
        if self.process.poll() is None:
            _signal_group(self.process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(grace_s)
            self._wait_for_tree(deadline)
        # What is left has ignored the request or has been abandoned by a parent that is gone.
        self._tree |= descendants(self.process.pid)
        _signal_group(self.process.pid, signal.SIGKILL)
        for who in self._tree:
            if is_alive(who):
                _signal(who[0], signal.SIGKILL)
        self.process.wait(_GRACE_S)
        self._wait_for_tree(time.monotonic() + _GRACE_S)

    def _wait_for_tree(self, deadline: float) -> None:
        while any(map(is_alive, self._tree)) and time.monotonic() < deadline:
            time.sleep(0.02)


@contextlib.contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """While inside, SIGTERM and a terminal that is closed end the command as Ctrl-C does, so that children are stopped.

    Under `nohup` the terminal may be closed.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled([number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN], interrupt):
        yield


@contextlib.contextmanager
def _handled(numbers: Sequence[signal.Signals], handler: Any) -> Iterator[None]:
    """Have no effect outside the main thread, which alone gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def descendants(pid: int) -> set[tuple[int, str]]:
    """(pid, start time) of every living descendant of `pid`; the start time tells a reused pid apart."""
    children: dict[int, list[tuple[int, str]]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        facts = _stat(entry)
        if facts is not None:
            children.setdefault(facts[1], []).append((facts[0], facts[2]))
    descendants: set[tuple[int, str]] = set()
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            descendants.add(child)
            waiting.append(child[0])
    return descendants


def is_alive(who: tuple[int, str]) -> bool:
    """True while the process of this pid and start time runs (a zombie does not)."""
    facts = _stat(Path(f"/proc/{who[0]}/stat"))
    return facts is not None and facts[2] == who[1]


def tail(text: str, n_lines: int = 20) -> list[str]:
    """The last lines that say something; of a line rewritten with carriage returns, its last state."""
    lines = [line.rstrip().rpartition("\r")[2] for line in text.split("\n")]
    return [line for line in lines if line.strip()][-n_lines:]


def _stat(path: Path) -> tuple[int, int, str] | None:
    try:
        head, _, rest = path.read_text(encoding="utf-8", errors="replace").rpartition(")")
    except OSError:
        return None  # it ended while we looked
    fields = rest.split()
    if fields[0] in "ZX":
        return None
    return int(head.partition(" ")[0]), int(fields[1]), fields[19]


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


_LISTENING = re.compile(r"listening on (http://\S+)")


class RewardService:
    """Starts `command` with a stage's options, a reward server that prints "listening on http://HOST:PORT"."""

    def __init__(self, command: Sequence[str], log: Path, *, cwd: Path, env: Mapping[str, str]) -> None:
        self.command, self.log, self.cwd, self.env = command, log, cwd, env
        self._child: Child | None = None
        self._options: list[str] = []
        self._url = ""

    def __enter__(self) -> RewardService:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def url(self, options: Sequence[str] = ()) -> str:
        """The address of a server with these options that is ready to judge.

        A server that has ended is started again; one with other options is stopped first. Raises UserError with
        the server's last words when it ends or is not ready within the deadline.
        """
        if self._child is None or self._child.poll() is not None or list(options) != self._options:
            self.stop()
            self._options = list(options)
            self._child = Child([*self.command, *options], self.log, cwd=self.cwd, env=self.env)
            self._url = self._wait_until_ready(self._child)
        return self._url

    def stop(self) -> None:
        """Stop the server if it runs."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def _wait_until_ready(self, child: Child) -> str:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline and child.poll() is None:
            address = _LISTENING.search(child.output())
            if address and is_ready(address.group(1)):
                return address.group(1)
            time.sleep(0.1)
        happened = f"was not ready after {READY_S:.0f} s" if child.poll() is None else "ended at once"
        words = (tail(child.output(), 1) or ["it said nothing"])[0]
        raise UserError(f"the reward server {happened} ({words}): read {self.log} and run the demo again")


def is_ready(url: str) -> bool:
    """True when `GET url/readyz` answers 200."""
    with contextlib.closing(HttpClient([url], "reward server", "/readyz")) as client:
        return client.unready(url, time.monotonic() + _PROBE_S) is None
