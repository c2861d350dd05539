"""The command line of a benchmark, its result, and the machine: without that a result means nothing."""

from __future__ import annotations

import argparse
import os
import platform
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results"
_CPUINFO = Path("/proc/cpuinfo")
_PACKAGES = ("paddlepaddle", "paddlenlp", "numpy")


def command_line(description: str, name: str) -> argparse.ArgumentParser:
    """A parser with the option `--out`, by default benchmarks/results/NAME.json."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    result = RESULTS / f"{name}.json"
    parser.add_argument("--out", type=Path, default=result, help="JSON file to write (default: %(default)s)")
    return parser


def describe_machine() -> dict[str, object]:
    """CPU, cores, threads, versions, and the load before the measurement: above 0.5, something else was running."""
    from grrm import startup

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


def write_result(path: Path, result: object) -> None:
    """Write the result of a benchmark as an indented JSON file, and say where."""
    from grrm.data.atomic import write_json

    write_json(path, result, indent=2)
    print(f"written to {path}")


def resident_bytes(name: str) -> int:
    """Memory of this process now ("VmRSS"), or at most so far ("VmHWM"); `ru_maxrss` counts what its parent held."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(f"{name}:"))


def _cpu_model() -> str:
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "unknown")
