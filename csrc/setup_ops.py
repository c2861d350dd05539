"""Compiles the kernels ahead of time, for a container image or a node whose jobs have no compiler.

    python csrc/setup_ops.py install [--cache FOLDER]

They lie in FOLDER (by default XDG_CACHE_HOME, else ~/.cache) below `paddle-grrm`, where every process of this version
looks for them; one with another home folder needs XDG_CACHE_HOME=FOLDER. Otherwise the first process that needs them
compiles them. Ends with 1, and a sentence, where they cannot be compiled.
"""

from __future__ import annotations

import argparse
import os
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
    from grrm_csrc.build import cache_folder, kernels

    found = kernels()
    if found.library is None:
        print(f"The kernels were not compiled: {found.reason}.", file=sys.stderr)
        return 1
    print(f"The kernels are in {cache_folder()}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
