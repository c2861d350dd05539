"""`grrm doctor --gpu`: the rows of `grrm.cli.gpu_check`, which runs in a child, as findings."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from grrm.cli.commands.doctor_packages import Finding

CHECK = (sys.executable, "-W", "ignore", "-m", "grrm.cli.gpu_check")
CHECK_S = 300.0
_NO_GPU = "the checks below ran on the CPU, which tries them and not a GPU: install the extra gpu, see docs/install.md"


def examine_gpu(command: Sequence[str] = CHECK, timeout_s: float = CHECK_S) -> list[Finding]:
    """The device and a finding for each check. A child that crashes or hangs is told with the check it was at."""
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        printed, ended = child.stdout, _ending(child)
    except subprocess.TimeoutExpired as error:
        printed = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        ended = f"no answer within {timeout_s:g} s"
    return list(_findings(_lines(printed), ended))


def _ending(child: subprocess.CompletedProcess[str]) -> str:
    if child.returncode == 0:
        return ""
    if child.returncode < 0:
        return f"the process died of signal {-child.returncode}"
    return (child.stderr.strip().splitlines() or [f"exit status {child.returncode}"])[-1]


def _lines(printed: str) -> Iterator[dict[str, Any]]:
    """Paddle prints there too."""
    for line in printed.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def _findings(lines: Iterable[dict[str, Any]], ended: str) -> Iterator[Finding]:
    begun = "GPU checks"
    for line in lines:
        if "device" in line:
            yield _device(line)
        elif "begins" in line:
            begun = line["begins"]
        else:
            yield _row(line)
            begun = ""
    if ended:
        yield Finding("broken", begun or "GPU checks", "did not finish", ended)


def _device(line: dict[str, Any]) -> Finding:
    version = f"paddle {line['paddle']}"
    if line["device"] == "gpu":
        return Finding("ok", "GPU", f"{line['name']}, {version}, bfloat16 beside the CPU's float32")
    return Finding("broken", "GPU", f"none is seen by {version}", _NO_GPU)


def _row(line: dict[str, Any]) -> Finding:
    if line["difference"] is None:
        level = "note" if line["problem"].startswith("not run") else "broken"
        return Finding(level, line["name"], line["problem"])
    detail = f"difference {line['difference']:.2g}, at most {line['limit']:g}"
    return Finding("broken" if line["problem"] else "ok", line["name"], detail, line["problem"])
