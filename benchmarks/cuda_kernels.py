"""Bandwidth of the CUDA kernels relative to that of the GPU's memory, which alone bounds them.

    python benchmarks/cuda_kernels.py [--out FILE]

`of_copy` is a kernel's bandwidth relative to that of a copy of 1 GiB on the same card; bytes are what a kernel has to
read and write at least, so those that read twice stand below what they move. Without nvcc or a GPU nothing is measured
or written, which a line says.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "benchmarks/cuda_kernels.cu"
RESULT = ROOT / "benchmarks/results/cuda_kernels.json"
_TIMEOUT_S = 600.0


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULT, help="JSON file to write (default: %(default)s)")
    options = parser.parse_args(arguments)
    missing = [tool for tool in ("nvcc", "nvidia-smi") if shutil.which(tool) is None]
    if missing:
        print(f"CUDA kernels are not measured: there is no {' and no '.join(missing)} here.")
        return
    from grrm.data.atomic import atomic_path

    card = _output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()[0]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "cuda_kernels"
        _output("nvcc", "-O3", "-std=c++17", "-arch=native", str(SOURCE), "-o", str(program))
        rows = [json.loads(line) for line in _output(str(program)).splitlines()]
    copy = next(row["gb_per_s"] for row in rows if row["kernel"] == "copy")
    for row in rows:
        row["of_copy"] = round(row["gb_per_s"] / copy, 3)
        speed = f"{row['us']:10.1f} us {row['gb_per_s']:8.0f} GB/s {row['of_copy']:6.2f}"
        print(f"{row['kernel']:<24}{row['type']:<6}{speed}")
    toolkit = _output("nvcc", "--version").splitlines()[-1]
    with atomic_path(options.out) as temporary:
        record = {"machine": {"gpu": card, "nvcc": toolkit}, "rows": rows}
        temporary.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(f"written to {options.out}")


def _output(*command: str) -> str:
    """Return the output of `command`; exit with it if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[-1000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
