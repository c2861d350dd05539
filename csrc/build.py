"""Compiles the kernels on first use and loads them.

The library lies in the user's cache under a name that the sources, the compiler and the flags make, so nothing stale is
ever loaded; processes that compile at the same time each put a whole file in place. Without a compiler there is no
library, callers use plain Paddle operators, and `grrm doctor` says what that costs.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

SWITCH = "GRRM_KERNELS"  # "off" does without them
_SOURCES = Path(__file__).resolve().parent
_MAIN = "bindings/c_api.cpp"
_FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-fopenmp", "-fno-math-errno", "-fno-trapping-math")
COMPILERS = ("c++", "g++", "clang++")
_COMPILE_TIMEOUT_S = 180.0
_ABI = 1


@dataclass(frozen=True, slots=True)
class Kernels:
    """The loaded library, or None with the reason why there is none."""

    library: ctypes.CDLL | None
    reason: str = ""


@lru_cache(maxsize=1)
def kernels() -> Kernels:
    """The kernels of this process, compiled if this machine has not done so yet."""
    if os.environ.get(SWITCH, "").lower() in ("off", "0"):
        return Kernels(None, f"{SWITCH} is off")
    compiler = find_compiler()
    if compiler is None:
        return Kernels(None, f"no C++ compiler ({', '.join(COMPILERS)}) is on PATH")
    try:
        path = cache_folder() / f"kernels-{fingerprint(compiler)}.so"
        if not path.exists():
            compile_to(path, compiler)
        library = ctypes.CDLL(str(path))
    except subprocess.TimeoutExpired:
        return Kernels(None, f"{compiler} did not finish in {_COMPILE_TIMEOUT_S:.0f} s")
    except subprocess.CalledProcessError as error:
        return Kernels(None, f"{compiler} failed: {_first_error(error.stderr)}")
    except OSError as error:
        return Kernels(None, f"the library cannot be written or loaded: {error}")
    if library.grrm_abi() != _ABI:
        return Kernels(None, f"{path} does not belong to this version: remove it")
    return Kernels(library)


def find_compiler() -> str | None:
    """The compiler named by CXX, else the first of the usual ones on PATH."""
    named = os.environ.get("CXX")
    candidates = [named] if named else list(COMPILERS)
    return next((found for name in candidates if (found := shutil.which(name))), None)


def cache_folder() -> Path:
    """`paddle-grrm` in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "paddle-grrm"


def fingerprint(compiler: str) -> str:
    """Changes with everything that the library is made of."""
    version = subprocess.run([compiler, "--version"], capture_output=True, timeout=30, check=True).stdout
    digest = hashlib.sha256(b"\0".join([version, " ".join(_FLAGS).encode(), platform.machine().encode()]))
    for path in sorted(_SOURCES.glob("*/*.h")) + sorted(_SOURCES.glob("*/*.cpp")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def compile_to(path: Path, compiler: str) -> None:
    """Compile the library; it appears whole or not at all. Raises CalledProcessError, TimeoutExpired or OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".build-") as folder:
        made = Path(folder) / "kernels.so"
        command = [compiler, *_FLAGS, str(_SOURCES / _MAIN), "-o", str(made)]
        subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=True)
        made.replace(path)


def _first_error(output: str) -> str:
    lines = [line for line in output.splitlines() if "error" in line] or output.splitlines()
    return lines[0][:300] if lines else "it said nothing"
