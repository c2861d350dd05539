"""Products with bfloat16 factors: right sums of rounded numbers, and the same bits for a row in any company."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bf16_products import Products

from grrm_csrc import blas
from grrm_csrc.blas import blas_addresses
from grrm_csrc.build import Kernels, kernels

pytestmark = pytest.mark.skipif(kernels().library is None, reason="there is no C++ compiler here")


def rounded(x):
    """The nearest bfloat16, ties to even, as float64."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 140), st.integers(1, 140), st.integers(1, 900), st.booleans(), st.booleans(), st.integers(0, 2**31)
)
def test_sums_of_rounded_factors(m, n, k, a_transposed, b_transposed, seed):
    rng, products = np.random.default_rng(seed), Products()
    a, b = (rng.normal(size=size).astype(np.float32) for size in ((m, k), (k, n)))
    wanted = rounded(a) @ rounded(b)
    largest = (np.abs(rounded(a)) @ np.abs(rounded(b))).max()
    stored = [np.ascontiguousarray(x.T) if flips else x for x, flips in ((a, a_transposed), (b, b_transposed))]
    for beta in (0.0, 1.0):
        c = np.full((m, n), 3.0, np.float32)
        products.multiply(*stored, c, beta, a_transposed, b_transposed)
        np.testing.assert_allclose(c, wanted + 3.0 * beta, atol=1e-6 * (largest + 3.0), rtol=0)
        from_packed = np.full((m, n), 3.0, np.float32)
        products.multiply_packed(a, products.lay_out(stored[1], b_transposed), from_packed, beta)
        assert (from_packed == c).all()


def test_factors_that_are_bfloat16_already_give_the_exact_product():
    products = Products()
    a, b = np.array([[1.5, -2.0, 0.25]], np.float32), np.array([[3.0], [0.5], [-8.0]], np.float32)
    c = np.empty((1, 1), np.float32)
    products.multiply(a, b, c)
    assert c[0, 0] == 1.5 * 3.0 - 2.0 * 0.5 - 0.25 * 8.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_so_instead_of_becoming_a_number(bad):
    products = Products()
    a, b = np.ones((2, 40), np.float32), np.ones((40, 33), np.float32)
    a[1, 7] = bad
    # All the bits of a quiet NaN that rounding could carry into the sign.
    a[1, 9] = np.array([0x7FFFFFFF if np.isnan(bad) else 0x3F800000], np.uint32).view(np.float32)[0]
    c = np.empty((2, 33), np.float32)
    products.multiply(a, b, c)
    assert (c[0] == 40.0).all()
    assert np.isnan(c[1]).all() if np.isnan(bad) else (c[1] == bad).all()


SAME_BITS = """
import numpy as np
from support.bf16_products import Products

products, rng = Products(), np.random.default_rng(0)
for k, n in ((576, 1536), (1536, 576), (802, 33)):
    a, b = rng.normal(size=(250, k)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32)
    packed, whole = products.lay_out(b), np.empty((250, n), np.float32)
    products.multiply(a, b, whole)
    for m in (1, 2, 5, 12, 13, 64, 250):
        c = np.empty((m, n), np.float32)
        products.multiply_packed(a[:m], packed, c)
        assert (c == whole[:m]).all(), (k, n, m)
    print(whole.tobytes().hex()[:4000])
"""


def test_a_row_has_the_same_bits_whatever_the_rows_and_threads():
    printed = []
    for threads in ("1", "2", "3"):
        environment = os.environ | {"OMP_NUM_THREADS": threads, "PYTHONPATH": "tests"}
        command = [sys.executable, "-c", SAME_BITS]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
        assert done.returncode == 0, done.stderr[-2000:]
        printed.append(done.stdout)
    assert printed[0]
    assert printed[0] == printed[1] == printed[2]


def test_without_kernels_there_are_no_such_products(monkeypatch):
    monkeypatch.setattr(blas, "kernels", lambda: Kernels(None, "none"))
    assert (blas_addresses("bfloat16"), blas.is_native("bfloat16")) == (None, False)


def test_a_precision_nobody_knows_is_refused():
    with pytest.raises(ValueError, match="precision 'float8' is none of float32, bfloat16, int8"):
        blas_addresses("float8")
