"""Runs an entry script in this process, which is killed as soon as it touches a file.

    python killed_at.py EVENT PATTERN SCRIPT [ARGUMENT ...]

EVENT is one of Python's audit events (open, os.mkdir, os.rename), PATTERN a regular expression that a path in it holds.
"""

from __future__ import annotations

import os
import re
import runpy
import signal
import sys
from pathlib import Path
from typing import Any


def kill_at(event: str, pattern: str) -> None:
    """Send this process SIGKILL, as a machine that is lost would, at the first such event."""

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        if name == event and any(re.search(pattern, os.fsdecode(one)) for one in arguments if _is_path(one)):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _is_path(value: object) -> bool:
    return isinstance(value, str | bytes | os.PathLike)


if __name__ == "__main__":
    event, pattern, script, *arguments = sys.argv[1:]
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)
    kill_at(event, pattern)
    runpy.run_path(script, run_name="__main__")
