"""The OpenMP runtime that paddle and its BLAS use.

The kernels are linked to the same one. Two runtimes would have two sets of threads on the same cores: those of the one
that wait, spinning, take the cores from the other, and those that sleep instead are woken up for every short loop.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
from functools import lru_cache
from pathlib import Path

_RUNTIME = "libiomp5.so"  # it answers to the names of GCC's runtime as well


@lru_cache(maxsize=1)
def paddle_runtime() -> Path | None:
    """Paddle's OpenMP runtime, which is loaded now; None where the wheel brings none and the system's serves all."""
    folder = paddle_libraries()
    if folder is None:
        return None
    with contextlib.suppress(OSError):
        ctypes.CDLL(str(folder / _RUNTIME))
        return folder / _RUNTIME
    return None


def paddle_libraries() -> Path | None:
    """The folder of the shared libraries in the paddle wheel; None without paddle."""
    paddle = importlib.util.find_spec("paddle")
    return None if paddle is None or paddle.origin is None else Path(paddle.origin).parent / "libs"
