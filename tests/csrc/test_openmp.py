"""The kernels and paddle's BLAS use the same threads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from grrm_csrc.blas import sgemm_address
from grrm_csrc.build import kernels
from grrm_csrc.openmp import paddle_runtime

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
