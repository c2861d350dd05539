"""Compiles the kernels ahead of time, for a container image or a node whose jobs have no compiler.

    python csrc/setup_ops.py install [--cache FOLDER]

They, and Paddle's operators around them, lie in FOLDER (by default XDG_CACHE_HOME, else ~/.cache) below `paddle-grrm`,
and every process of this version with the same cache folder uses them; if that is not the user's, XDG_CACHE_HOME names
it. Run it with the Python of those processes; otherwise the first process that needs the kernels compiles them.

Ends with 1, and a sentence, if they cannot be compiled.
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
    from grrm_csrc.compiling import cache_folder

    print(f"The kernels are in {cache_folder()}.")
    return 0


def install() -> str | None:
    """Compile them; returns why that could not be done, or None."""
    from grrm_csrc.build import kernel_library
    from grrm_csrc.compiling import find_compiler, why_no_compiler, why_not
    from grrm_csrc.operators import operator_compiler, operator_library

    kernels = kernel_library()
    operators = operator_library(kernels.installed_path())
    if operators is None:
        return f"{sys.executable} has no paddle, with whose libraries they work: run this with the Python that has it"
    for library, command in ((kernels, find_compiler()), (operators, operator_compiler())):
        if command is None:
            return str(why_no_compiler())
        try:
            library.compile_to(library.installed_path(), command)
        except (subprocess.SubprocessError, OSError, RuntimeError) as error:
            return str(why_not(error, command))
    return None


if __name__ == "__main__":
    sys.exit(main())
