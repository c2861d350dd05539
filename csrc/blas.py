"""Where the matrix products of the kernels come from: the BLAS that the paddle wheel brings along."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
from functools import lru_cache
from pathlib import Path

_LIBRARIES = ("libmklml_intel.so", "libopenblas.so", "libopenblas.so.0")  # on x86, and elsewhere
_RUNTIME = "libiomp5.so"  # which the first needs, and finds only where it is loaded already


@lru_cache(maxsize=1)
def sgemm_address() -> int | None:
    """The address of `cblas_sgemm` in paddle's own BLAS; None where the wheel brings none that is known."""
    paddle = importlib.util.find_spec("paddle")
    if paddle is None or paddle.origin is None:
        return None
    folder = Path(paddle.origin).parent / "libs"
    with contextlib.suppress(OSError):
        ctypes.CDLL(str(folder / _RUNTIME))
    for name in _LIBRARIES:
        try:
            return ctypes.cast(ctypes.CDLL(str(folder / name)).cblas_sgemm, ctypes.c_void_p).value
        except (OSError, AttributeError):
            continue
    return None
