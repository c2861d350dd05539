"""Kernels that are compiled ahead of time are used by processes without a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grrm_csrc import setup_ops
from grrm_csrc.build import find_compiler


def install(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, setup_ops.__file__, "install", *arguments]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.skipif(find_compiler() is None, reason="there is no C++ compiler here")
def test_kernels_compiled_ahead_of_time_need_no_compiling_later(tmp_path: Path):
    done = install("--cache", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    (made,) = (tmp_path / "paddle-grrm").iterdir()
    assert done.stdout.endswith(f"The kernels are in {made}.\n")
    assert made.name.endswith("-installed.so")
    use = "from grrm_csrc import build\nprint(build.kernels().library is not None, build.kernels().reason)\n"
    elsewhere = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "CXX": "no-such-compiler"}
    for found in ("True", "False no CXX=no-such-compiler is on PATH"):
        command = [sys.executable, "-c", use]
        used = subprocess.run(command, env=elsewhere, capture_output=True, text=True, timeout=120, check=True)
        assert used.stdout.strip() == found
        made.unlink(missing_ok=True)


def test_what_keeps_them_from_being_compiled_is_one_sentence(tmp_path: Path):
    done = install("--cache", str(tmp_path), CXX="no-such-compiler")
    assert done.returncode == 1
    assert done.stderr == "The kernels were not compiled: no CXX=no-such-compiler is on PATH.\n"
