"""Compiles the kernels on first use and loads them.

The library lies in the user's cache under a name that the sources, the compiler and the flags make, so nothing stale is
ever loaded; processes that compile at the same time each put a whole file in place. What `setup_ops.py` has compiled
ahead of time needs no compiler. Without either there is no library, callers use plain Paddle operators, and `grrm
doctor` says what that costs.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from grrm_csrc.openmp import paddle_runtime

SWITCH = "GRRM_KERNELS"  # "off" does without them
_SOURCES = Path(__file__).resolve().parent
_MAIN = "bindings/c_api.cpp"
_FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-fopenmp", "-fno-math-errno", "-fno-trapping-math")
_COMPILERS = ("c++", "g++", "clang++")
_COMPILE_TIMEOUT_S = 180.0
_ABI = 10


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
    with contextlib.suppress(OSError, RuntimeError, AttributeError):
        return Kernels(_checked(installed_path()))
    compiler = find_compiler()
    if compiler is None:
        named = os.environ.get("CXX")
        wanted = f"CXX={named}" if named else f"C++ compiler ({', '.join(_COMPILERS)})"
        return Kernels(None, f"no {wanted} is on PATH")
    try:
        return Kernels(_load(cache_folder() / f"kernels-{fingerprint(compiler)}.so", compiler))
    except subprocess.TimeoutExpired as error:
        return Kernels(None, f"{compiler[0]} did not finish in {error.timeout:.0f} s")
    except subprocess.CalledProcessError as error:
        return Kernels(None, f"{compiler[0]} failed: {first_error(error.stderr)}")
    except (OSError, RuntimeError, AttributeError) as error:  # RuntimeError: there is no home folder
        return Kernels(None, f"the library cannot be written or loaded: {error}")


def _load(path: Path, compiler: Sequence[str]) -> ctypes.CDLL:
    """The library, compiled where it is missing, and once more where it cannot be loaded (cut short, another libc)."""
    if path.exists():
        try:
            return _checked(path)
        except (OSError, AttributeError):
            path.unlink(missing_ok=True)
    compile_to(path, compiler)
    return _checked(path)


def _checked(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    if library.grrm_abi() != _ABI:
        raise OSError(f"{path} does not belong to this version")
    return library


def find_compiler(which: Callable[[str], str | None] = shutil.which) -> list[str] | None:
    """The compiler named by CXX, with its arguments, else the first of the usual ones on PATH; None without one."""
    named = shlex.split(os.environ.get("CXX", ""))
    for command in [named] if named else [[name] for name in _COMPILERS]:
        found = which(command[0])
        if found is not None:
            return [found, *command[1:]]
    return None


def cache_folder() -> Path:
    """`paddle-grrm` in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "paddle-grrm"


def installed_path() -> Path:
    """Where `setup_ops.py` puts the library; used whatever compiler there is. Raises RuntimeError without a home."""
    return cache_folder() / f"kernels-{_fingerprint_of_sources()}-installed.so"


def fingerprint(compiler: Sequence[str]) -> str:
    """Changes with everything that the library is made of. Raises CalledProcessError, TimeoutExpired or OSError."""
    command = [*compiler, "--version"]
    version = subprocess.run(command, capture_output=True, text=True, timeout=30.0, check=True).stdout
    how = hashlib.sha256("\0".join([version, *compiler[1:]]).encode()).hexdigest()
    return f"{_fingerprint_of_sources()}-{how[:8]}"


def _fingerprint_of_sources() -> str:
    runtime = paddle_runtime()
    parts = [*_FLAGS, platform.machine(), runtime.name if runtime else ""]
    digest = hashlib.sha256("\0".join(parts).encode())
    for path in sorted(_SOURCES.glob("*/*.h")) + sorted(_SOURCES.glob("*/*.cpp")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def compile_to(path: Path, compiler: Sequence[str]) -> None:
    """Compile the library; it appears whole or not at all. Raises CalledProcessError, TimeoutExpired or OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".build-") as folder:
        made = Path(folder) / "kernels.so"
        runtime = paddle_runtime()
        # What the compiler itself would link for OpenMP comes later, and is dropped as not needed.
        link = [] if runtime is None else ["-Wl,--as-needed", str(runtime)]
        command = [*compiler, *_FLAGS, str(_SOURCES / _MAIN), *link, "-o", str(made)]
        subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=True)
        made.replace(path)


def first_error(output: str) -> str:
    """The line of a compiler's output that says most."""
    lines = [line for line in output.splitlines() if "error" in line] or output.splitlines()
    return lines[0][:300] if lines else "it said nothing"
