"""Renders a chat template once in a process of its own, whose time and memory are limited.

Templates come with checkpoints; `{{ "x" * 10**10 }}` or a few nested loops are enough to stop a server. This file is
also the program of that process.
"""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

SECONDS, MIB, CHARACTERS = 5, 512, 1 << 20
_TOO_MUCH = 3  # exit status
_WAIT_S = 60.0


@cache
def runs_away(template: str) -> bool:
    """True where one word takes more than `SECONDS` of CPU time or `MIB` of memory, or becomes `CHARACTERS` long."""
    try:
        command = [sys.executable, "-I", str(Path(__file__).resolve())]
        done = subprocess.run(command, input=template.encode(), capture_output=True, timeout=_WAIT_S, check=False)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode in {_TOO_MUCH, -signal.SIGXCPU, -signal.SIGKILL}


def _main() -> int:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MIB << 20, MIB << 20))
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    turns = [{"role": "user", "content": "probe"}]
    try:
        template = ImmutableSandboxedEnvironment().from_string(sys.stdin.read())
        return _TOO_MUCH if len(template.render(messages=turns, add_generation_prompt=True)) > CHARACTERS else 0
    except MemoryError:
        return _TOO_MUCH
    except Exception:  # noqa: BLE001 - a mistake of the template is told by whoever renders it
        return 0


if __name__ == "__main__":
    sys.exit(_main())
