"""Kernels that are compiled ahead of time are used by processes without a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grrm_csrc import setup_ops
from grrm_csrc.blas import sgemm_address
from grrm_csrc.build import kernels
from grrm_csrc.compiling import find_compiler
from grrm_csrc.openmp import paddle_runtime

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


# --- the kernels and paddle's BLAS use the same threads


# Prints how many threads a product of paddle's BLAS starts, and how many a kernel after it.
PROBE = """
import ctypes
from pathlib import Path
import numpy as np
from grrm_csrc.blas import sgemm_address
from grrm_csrc.build import kernels

def n_threads():
    return len(list(Path("/proc/self/task").iterdir()))

integer, single, pointer = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
types = [integer] * 6 + [single, pointer, integer, pointer, integer, single, pointer, integer]
n, library, sgemm = 512, kernels().library, ctypes.CFUNCTYPE(None, *types)(sgemm_address())
square, result = np.ones((n, n), "float32"), np.empty((n, n), "float32")
before = n_threads()
sgemm(101, 111, 111, n, n, n, 1.0, square.ctypes.data, n, square.ctypes.data, n, 0.0, result.ctypes.data, n)
assert (result == n).all()
after_product = n_threads()
library.grrm_swiglu(*(pointer(array.ctypes.data) for array in (square, square, result)), ctypes.c_int64(n * n))
print(after_product - before, n_threads() - after_product)
"""


@pytest.mark.skipif(
    kernels().library is None or paddle_runtime() is None or sgemm_address() is None,
    reason="there are no kernels or paddle brings no OpenMP runtime",
)
def test_two_runtimes_whose_threads_keep_cores_from_each_other_are_one():
    environment = dict(os.environ, OMP_NUM_THREADS="2", MKL_NUM_THREADS="2", MKL_DYNAMIC="FALSE")
    run = subprocess.run(
        [sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True, timeout=600, check=True
    )
    assert run.stdout.split() == ["1", "0"]


# --- the kernels stay inside their arrays and do nothing undefined: a program of them under sanitizers


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
