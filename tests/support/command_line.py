"""The command `grrm` as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

GRRM = [sys.executable, "-m", "grrm.cli"]


def grrm(*arguments: object, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it to the end, with this text on its standard input; its status is not checked."""
    return subprocess.run(
        [*GRRM, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=600,
        check=False,
        env=os.environ | environment,
    )
