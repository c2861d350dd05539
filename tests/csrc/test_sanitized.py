"""The kernels stay inside their arrays and do nothing undefined: a program of them under sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from grrm_csrc.compiling import find_compiler

SOURCE = Path(__file__).with_name("sanitized.cpp")
FLAGS = ["-O1", "-g", "-std=c++17", "-fopenmp", "-fno-sanitize-recover=all", "-fsanitize=address,undefined"]


@pytest.mark.slow
@pytest.mark.parametrize("products", [[], ["-DGRRM_PLAIN_PRODUCTS"]], ids=["as they run here", "as on any processor"])
def test_no_kernel_leaves_its_arrays_or_does_what_is_undefined(products, tmp_path):
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("there is no C++ compiler here")
    program = tmp_path / "sanitized"
    # Functions that the loader chooses run before the sanitizer is ready, so the plain version is what is checked.
    command = [*compiler, *FLAGS, *products, "-DGRRM_NO_CLONES", str(SOURCE), "-o", str(program)]
    made = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if any(sign in made.stderr for sign in ("cannot find", "libclang_rt", "'omp.h' file not found")):
        pytest.skip("the compiler has no sanitizer or OpenMP libraries here")
    assert made.returncode == 0, made.stderr[-2000:]
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "clean"), done.stderr[-3000:]
