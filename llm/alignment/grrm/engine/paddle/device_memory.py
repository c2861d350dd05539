"""Total and free memory of the models' device."""

from __future__ import annotations

import os
from pathlib import Path

import paddle

from grrm.startup import local_processes

_MEMINFO = Path("/proc/meminfo")
_CONTAINER = Path("/sys/fs/cgroup")  # of version 2, as a container sees its own


def device_memory_bytes() -> int:
    """Total memory of the device that models are loaded on: a GPU's, else this machine's."""
    if paddle.device.get_device().startswith("gpu"):
        return int(paddle.device.cuda.get_device_properties().total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free_memory_bytes() -> int:
    """Free memory for this process: a GPU's, else its share of the machine's available memory.

    Other processes on the same GPU are not considered. Ranks on a machine without GPUs share the available memory, or
    the remaining limit of the container.
    """
    if paddle.device.get_device().startswith("gpu"):
        paddle.device.cuda.empty_cache()  # memory that Paddle caches for freed tensors
        return device_memory_bytes() - int(paddle.device.cuda.memory_reserved())
    return min(_available(), _container_bytes()) // local_processes()


def _available() -> int:
    try:
        lines = _MEMINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return device_memory_bytes()
    (kib,) = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")] or [0]
    return kib * 1024 or device_memory_bytes()


def _container_bytes() -> int:
    """Remaining memory under the container's limit, page cache not counted; unlimited without one."""
    try:
        limit = (_CONTAINER / "memory.max").read_text(encoding="utf-8").strip()
        used = int((_CONTAINER / "memory.current").read_text(encoding="utf-8"))
        statistics = dict(line.split() for line in (_CONTAINER / "memory.stat").read_text("utf-8").splitlines())
    except (OSError, ValueError):
        return device_memory_bytes()
    if limit == "max":
        return device_memory_bytes()
    return max(0, int(limit) - used + int(statistics.get("inactive_file", 0)))
