"""Description of the machine of a measurement: without it a result means nothing."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

from grrm import startup

_CPUINFO = Path("/proc/cpuinfo")
_PACKAGES = ("paddlepaddle", "paddlenlp", "numpy")


def describe_machine() -> dict[str, object]:
    """CPU, cores, threads, versions, and the load before the measurement: above 0.5, something else was running."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in _PACKAGES},
        "settings": startup.describe(),
        "load_before": None if load is None else round(load, 2),
    }


def _cpu_model() -> str:
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "unknown")
