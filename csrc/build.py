"""The kernels of this process: compiled on first use, loaded once.

Without them callers use plain Paddle operators, and `grrm doctor` says what that costs.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from grrm_csrc.compiling import Library, find_compiler, obtain
from grrm_csrc.openmp import paddle_runtime

SWITCH = "GRRM_KERNELS"  # "off" does without them
_SONAME = "libgrrm_kernels.so"  # what the operators that call them ask for
_ABI = 13


@dataclass(frozen=True, slots=True)
class Kernels:
    """The loaded library, or None with the reason why there is none."""

    library: ctypes.CDLL | None
    reason: str = ""

    @property
    def path(self) -> Path | None:
        """The file that it was loaded from."""
        return None if self.library is None else Path(self.library._name)


@lru_cache(maxsize=1)
def kernels() -> Kernels:
    """The kernels of this process, compiled if this machine has not done so yet."""
    if os.environ.get(SWITCH, "").lower() in ("off", "0"):
        return Kernels(None, f"{SWITCH} is off")
    return Kernels(*obtain(kernel_library(), _checked, find_compiler()))


def kernel_library() -> Library:
    """Return the definition of the kernels' library."""
    runtime = paddle_runtime()
    return Library(
        "kernels",
        main=("bindings/c_api.cpp",),
        sources=("kernels/*.h", "bindings/c_api.cpp", "bindings/training.h"),
        flags=("-fopenmp", "-fno-math-errno", "-fno-trapping-math", f"-Wl,-soname,{_SONAME}"),
        # What the compiler itself would link for OpenMP comes later, and is dropped as not needed.
        linked=() if runtime is None else ("-Wl,--as-needed", str(runtime)),
    )


def _checked(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    if library.grrm_abi() != _ABI:
        raise OSError(f"{path} does not belong to this version")
    return library
