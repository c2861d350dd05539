"""Kernels that are compiled ahead of time are used by processes without a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grrm_csrc import setup_ops
from grrm_csrc.compiling import find_compiler

NO_COMPILER = "Operators(registered=False, reason='no CXX=no-such-compiler is on PATH', with_cuda=False)"


def install(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, setup_ops.__file__, "install", *arguments]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600, check=False
    )


@pytest.mark.slow
@pytest.mark.skipif(find_compiler() is None, reason="there is no C++ compiler here")
def test_kernels_compiled_ahead_of_time_need_no_compiling_later(tmp_path: Path):
    done = install("--cache", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f"The kernels are in {tmp_path / 'paddle-grrm'}.\n")
    made = sorted((tmp_path / "paddle-grrm").iterdir())
    assert [path.name.split("-")[0] for path in made] == ["kernels", "operators"]
    assert all(path.name.endswith("-installed.so") for path in made)
    elsewhere = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "CXX": "no-such-compiler"}
    for found in ("Operators(registered=True, reason='', with_cuda=False)", NO_COMPILER):
        command = [sys.executable, "-c", "from grrm.models.cpu_layers.operators import operators\nprint(operators())"]
        used = subprocess.run(command, env=elsewhere, capture_output=True, text=True, timeout=600, check=True)
        assert used.stdout.splitlines()[-1] == found
        made.pop().unlink()


def test_what_keeps_them_from_being_compiled_is_one_sentence(tmp_path: Path):
    done = install("--cache", str(tmp_path), CXX="no-such-compiler")
    assert done.returncode == 1
    assert done.stderr == "The kernels were not compiled: no CXX=no-such-compiler is on PATH.\n"
