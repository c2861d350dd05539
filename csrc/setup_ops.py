"""Compiles the kernels ahead of time, for a container image or a node whose jobs have no compiler.

    python csrc/setup_ops.py install [--cache FOLDER]

They lie in FOLDER (by default XDG_CACHE_HOME, else ~/.cache) below `paddle-grrm`, and every process of this version
that has the same folder of caches uses them; where that is not the user's, XDG_CACHE_HOME names it. Run it with the
Python of those processes. Otherwise the first process that needs the kernels compiles them. Ends with 1, and a
sentence, where they cannot be compiled.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["install"])
    parser.add_argument("--cache", type=Path, help="folder of caches to compile into (default: the user's)")
    options = parser.parse_args(arguments)
    if options.cache is not None:
        os.environ["XDG_CACHE_HOME"] = str(options.cache.resolve())
    reason = install()
    if reason:
        print(f"The kernels were not compiled: {reason}.", file=sys.stderr)
        return 1
    from grrm_csrc.build import installed_path

    print(f"The kernels are in {installed_path()}.")
    return 0


def install() -> str | None:
    """Compile them; returns why that could not be done, or None."""
    from grrm_csrc.build import compile_to, find_compiler, first_error, installed_path, kernels
    from grrm_csrc.openmp import paddle_libraries

    if paddle_libraries() is None:
        return f"{sys.executable} has no paddle, with whose libraries they work: run this with the Python that has it"
    compiler = find_compiler()
    if compiler is None:
        missing: str = kernels().reason
        return missing
    try:
        compile_to(installed_path(), compiler)
    except subprocess.CalledProcessError as error:
        return f"{compiler[0]} failed: {first_error(error.stderr)}"
    except (subprocess.TimeoutExpired, OSError, RuntimeError) as error:
        return str(error)
    return None


if __name__ == "__main__":
    sys.exit(main())
