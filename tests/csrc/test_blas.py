"""The BLAS of the kernels: found in paddle's wheel, or said to be missing."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grrm_csrc import blas


def test_a_wheel_without_a_known_blas_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(blas, "paddle_libraries", lambda: tmp_path)
    assert blas.sgemm_address() is None
    assert blas.packing_addresses() is None


def test_without_paddle_there_is_no_blas(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert blas.sgemm_address() is None


PACKED_PRODUCTS = """
import ctypes, sys
import numpy as np
from grrm_csrc import blas

room, packing, product = [ctypes.CFUNCTYPE(kind)(at) for kind, at in
                          zip((ctypes.c_size_t, None, None), blas.packing_addresses())]
number, real, at = ctypes.c_int, ctypes.c_float, lambda array: ctypes.c_void_p(array.ctypes.data)
rng = np.random.default_rng(0)
for k, n in ((576, 1536), (576, 192), (1536, 576), (576, 2000), (100, 33)):
    b = rng.standard_normal((k, n), dtype=np.float32)
    packed = np.empty(room(number(162), number(16), number(n), number(k)) // 4 + 32, np.float32)
    packed = packed[-(packed.ctypes.data // 4) % 16 :]
    packing(number(101), number(162), number(111), number(16), number(n), number(k), real(1), at(b), number(n),
            at(packed))
    a = rng.standard_normal((1024, k), dtype=np.float32)
    wanted = a @ b
    alone = None
    for m in (2, 4, 16, 18, 250, 1024):
        c = np.ones((m, n), np.float32)
        product(number(101), number(111), number(151), number(m), number(n), number(k), at(a), number(k), at(packed),
                number(n), real(0), at(c), number(n))
        assert np.abs(c - wanted[:m]).max() < 1e-3, (k, n, m)
        alone = c[:2] if alone is None else alone
        same = (c[:2] == alone).all() if sys.argv[1] == "exact" else np.allclose(c[:2], alone, atol=1e-4)
        assert same, (k, n, m)
"""
# With shorter registers the library adds up a row's products in an order that depends on the number of rows.
KEEPS_BITS = "avx512f" in Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else False


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_matrix_that_was_laid_out_gives_a_row_its_numbers_in_any_company_and_with_avx512_its_bits(threads):
    if blas.packing_addresses() is None:
        pytest.skip("the BLAS of this wheel does not lay matrices out")
    environment = os.environ | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    command = [sys.executable, "-c", PACKED_PRODUCTS, "exact" if KEEPS_BITS else "close"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
