"""Programs that answer requests in a process of their own, which a deadline can end whatever they are doing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import IO, Any, BinaryIO


class WorkerFailure(Exception):
    """A program gave no answer: a timeout (`is_late`), a crash or an error. The message is the cause."""

    def __init__(self, cause: str, is_late: bool = False) -> None:
        super().__init__(cause)
        self.is_late = is_late


class Worker:
    """The process of one program, started on first use, and restarted after a crash or a timeout.

    The program writes the line `{"ready": true}` once it can be asked, then one JSON line per request, with the
    request's `id`; where it fails, a line with `error`. A timeout kills the process, which would block the next request
    otherwise. Not thread-safe.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: _Process | None = None
        self._n_requests = 0

    def start(self, deadline_s: float) -> None:
        """Start the program, unless it runs. Raises WorkerFailure if it is not ready in time, or fails."""
        if self._process is not None and self._process.is_alive:
            return
        self.close()
        self._process = _Process(self._command)
        answer = self._receive(time.monotonic() + deadline_s)
        if answer.get("ready") is not True:
            self.close()
            raise WorkerFailure(str(answer.get("error", "it does not say that it is ready")))

    def ask(self, request: Mapping[str, Any], deadline_s: float) -> dict[str, Any]:
        """The answer to a request, from the program that `start` left running. Raises WorkerFailure."""
        until = time.monotonic() + deadline_s
        assert self._process is not None
        self._n_requests += 1
        message = {"id": self._n_requests, **request}  # may block, where the program does not read
        threading.Thread(target=self._process.send, args=(message,), daemon=True).start()
        answer = self._receive(until)
        if "error" in answer:
            raise WorkerFailure(str(answer["error"]))
        if answer.get("id") != self._n_requests:
            self.close()
            raise WorkerFailure("it answered another request")
        return answer

    def close(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _receive(self, until: float) -> dict[str, Any]:
        assert self._process is not None
        try:
            return self._process.receive(max(until - time.monotonic(), 0.0))
        except WorkerFailure:
            self.close()
            raise


class _Process:
    """A process with a protocol of JSON lines; it ends with this one."""

    def __init__(self, command: Sequence[str]) -> None:
        self._log = tempfile.TemporaryFile(prefix="grrm-worker-")  # noqa: SIM115 - as long as the process
        self._popen = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, start_new_session=True
        )
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._end = weakref.finalize(self, _end, self._popen, self._log)
        assert self._popen.stdout is not None
        threading.Thread(target=_read, args=(self._popen.stdout, self._lines), daemon=True).start()

    @property
    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def send(self, message: Mapping[str, Any]) -> None:
        """Write a line; if the process no longer reads, the missing answer is noticed later."""
        assert self._popen.stdin is not None
        with contextlib.suppress(OSError):
            self._popen.stdin.write(json.dumps(message).encode("ascii") + b"\n")
            self._popen.stdin.flush()

    def receive(self, seconds: float) -> dict[str, Any]:
        """The next line. Raises WorkerFailure when there is none in time, the process ended, or it is no JSON."""
        try:
            line = self._lines.get(timeout=seconds)
        except Empty:
            raise WorkerFailure(f"it did not answer within {seconds:.3g} s", is_late=True) from None
        try:
            answer = None if line is None else json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise WorkerFailure(self._last_words() if line is None else "it answered what is no JSON object")
        return answer

    def kill(self) -> None:
        """End the process and all that it started."""
        self._end()

    def _last_words(self) -> str:
        status = self._popen.wait()
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().decode("utf-8", "replace").splitlines() if line.strip()]
        return f"it ended with status {status}" + (f" ({lines[-1][:300]})" if lines else "")


def _end(process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):  # a line that was never read
                stream.close()
    log.close()


def _read(stream: BinaryIO, lines: SimpleQueue[bytes | None]) -> None:
    """Every whole line, then None."""
    with contextlib.suppress(OSError, ValueError):  # closed beside this thread
        for line in stream:
            if line.endswith(b"\n"):
                lines.put(line)
    lines.put(None)
