"""Compilation of a shared library from the sources in this folder, and its cache.

It lies in the user's cache under a name from its sources, the compiler and the flags, so nothing stale is ever loaded;
processes that compile at the same time each write a complete file. A library that `setup_ops.py` has compiled ahead of
time needs no compiler.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

SOURCES = Path(__file__).resolve().parent
_COMPILERS = ("c++", "g++", "clang++")
_COMPILE_TIMEOUT_S = 300.0
_COMMON = ("-O3", "-std=c++17", "-shared", "-fPIC")
Loaded = TypeVar("Loaded")


@dataclass(frozen=True, slots=True)
class Library:
    """Definition of a library: `main` is compiled, `sources` (patterns) are all that it includes.

    `flags` go before `main`, `linked` behind it; `belongs_to` identifies other dependencies, such as a version of
    Paddle.
    """

    name: str
    main: tuple[str, ...]
    sources: tuple[str, ...]
    flags: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    belongs_to: str = ""

    @property
    def with_cuda(self) -> bool:
        """True where CUDA kernels are part of it."""
        return any(main.endswith(".cu") for main in self.main)

    def installed_path(self) -> Path:
        """Path for `setup_ops.py`; used whatever compiler there is. Raises RuntimeError without a home."""
        return cache_folder() / f"{self.name}-{self._fingerprint_of_sources()}-installed.so"

    def cached_path(self, compiler: Sequence[str]) -> Path:
        """Path on first use. Raises CalledProcessError, TimeoutExpired, OSError or RuntimeError."""
        return cache_folder() / f"{self.name}-{self.fingerprint(compiler)}.so"

    def fingerprint(self, compiler: Sequence[str]) -> str:
        """Changes with everything that it is made of. Raises CalledProcessError, TimeoutExpired or OSError."""
        command = [*compiler, "--version"]
        version = subprocess.run(command, capture_output=True, text=True, timeout=30.0, check=True).stdout
        how = hashlib.sha256("\0".join([version, *compiler[1:]]).encode()).hexdigest()
        return f"{self._fingerprint_of_sources()}-{how[:8]}"

    def _fingerprint_of_sources(self) -> str:
        linked = [Path(option).name for option in self.linked]
        digest = hashlib.sha256("\0".join([*_COMMON, *self.flags, *linked, self.belongs_to]).encode())
        digest.update(platform.machine().encode())
        for path in sorted(path for pattern in self.sources for path in SOURCES.glob(pattern)):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:16]

    def compile_to(self, path: Path, compiler: Sequence[str]) -> None:
        """Compile it; it appears whole or not at all. Raises CalledProcessError, TimeoutExpired or OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".build-") as folder:
            built = Path(folder) / f"{self.name}.so"
            mains = [str(SOURCES / main) for main in self.main]
            command = [*compiler, *_COMMON, *self.flags, *mains, *self.linked, "-o", str(built)]
            subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=True)
            built.replace(path)


def obtain(
    library: Library, load: Callable[[Path], Loaded], compiler: Sequence[str] | None
) -> tuple[Loaded | None, str]:
    """`load` of the library, compiled if this machine has not done so yet; else None and the reason, a phrase.

    `compiler` is a command with its arguments, None where there is none. `load` raises OSError, RuntimeError or
    AttributeError for a file that is no such library.
    """
    with contextlib.suppress(OSError, RuntimeError, AttributeError):
        installed = library.installed_path()
        if installed.exists():
            return load(installed), ""
    if compiler is None:
        return None, why_no_compiler()
    try:
        return _compiled(library, load, library.cached_path(compiler), compiler), ""
    except (OSError, RuntimeError, AttributeError, subprocess.SubprocessError) as error:
        return None, why_not(error, compiler)


def _compiled(library: Library, load: Callable[[Path], Loaded], path: Path, compiler: Sequence[str]) -> Loaded:
    """Compiled where it is missing, and once more where it cannot be loaded (cut short, another libc)."""
    if path.exists():
        try:
            return load(path)
        except (OSError, RuntimeError, AttributeError):
            path.unlink(missing_ok=True)
    library.compile_to(path, compiler)
    return load(path)


def find_compiler(which: Callable[[str], str | None] = shutil.which) -> list[str] | None:
    """The compiler named by CXX, with its arguments, else the first of the usual ones on PATH; None without one."""
    try:
        named = shlex.split(os.environ.get("CXX", ""))
    except ValueError:  # an open quote: no command
        return None
    for command in [named] if named else [[name] for name in _COMPILERS]:
        path = which(command[0])
        if path is not None:
            return [path, *command[1:]]
    return None


def why_no_compiler() -> str:
    """The phrase for a `find_compiler` that found none."""
    named = os.environ.get("CXX")
    missing = f"CXX={named}" if named else f"C++ compiler ({', '.join(_COMPILERS)})"
    return f"no {missing} is on PATH"


def why_not(error: Exception, compiler: Sequence[str]) -> str:
    """The phrase for what compiling or loading has raised."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"{compiler[0]} did not finish in {error.timeout:.0f} s"
    if isinstance(error, subprocess.CalledProcessError):
        return f"{compiler[0]} failed: {first_error(error.stderr)}"
    return f"the library cannot be written or loaded: {error}"  # RuntimeError: there is no home folder


def cache_folder() -> Path:
    """`paddle-grrm` in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "paddle-grrm"


def first_error(output: str) -> str:
    """The line of a compiler's output that says most."""
    lines = [line for line in output.splitlines() if "error" in line] or output.splitlines()
    return lines[0][:300] if lines else "it said nothing"
