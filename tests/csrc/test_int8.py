"""Products with weights in eight bits: near the exact ones, the same bits in any company, nothing made up."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bf16_products import Products

from grrm_csrc.blas import is_native
from grrm_csrc.build import find_compiler, kernels

pytestmark = pytest.mark.skipif(kernels().library is None, reason="there is no C++ compiler here")
needs_dot_products = pytest.mark.skipif(not is_native("int8"), reason="this processor has no dot products of bytes")


def steps_of(b):
    """The step of each column, and b in whole steps."""
    steps_N = np.abs(b).max(0).astype(np.float64) / 127
    return steps_N, np.where(steps_N > 0, np.rint(b / np.where(steps_N > 0, steps_N, 1)), 0)


def multiplied(products, a, b, *, beta=0.0, b_transposed=False):
    stored = products.lay_out(np.ascontiguousarray(b.T) if b_transposed else b, b_transposed)
    c = np.full((len(a), b.shape[1]), 3.0, np.float32)
    products.multiply_packed(a, stored, c, beta)
    return c


def assert_near(a, b, rounding, **how):
    """The product is off by `rounding` of a row's largest number in each of its numbers, and float32's last bits."""
    c = multiplied(Products("int8"), a, b, **how)
    steps_N, whole = steps_of(b)
    wanted = a.astype(np.float64) @ (whole * steps_N) + 3.0 * how.get("beta", 0.0)
    largest_M = np.abs(a).max(1, keepdims=True).astype(np.float64)
    bound = rounding * largest_M * (np.abs(whole) * steps_N).sum(0) + 1e-6 * (np.abs(wanted) + 3)
    # Where a number lies between two steps it may be either, so one step of one number is allowed.
    bound += largest_M * steps_N * (np.abs(np.abs(b / np.where(steps_N > 0, steps_N, 1) % 1) - 0.5) < 1e-4).any(0)
    assert (np.abs(c - wanted) <= bound).all()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 140), st.integers(1, 140), st.integers(1, 900), st.booleans(), st.booleans(), st.integers(0, 2**31)
)
def test_rows_keep_15_bits_and_a_sign_of_their_largest_number(m, n, k, b_transposed, adds, seed):
    rng = np.random.default_rng(seed)
    a, b = (rng.normal(size=size).astype(np.float32) for size in ((m, k), (k, n)))
    a *= np.exp(rng.normal(size=(m, 1)) * 8).astype(np.float32)
    b[:, rng.integers(n)] = 0.0  # a column without a largest number
    rounding = 2.0**-16 if is_native("int8") else 2.0**-8
    assert_near(a, b, rounding, beta=float(adds), b_transposed=b_transposed)


@pytest.mark.parametrize("k", [32768, 32769, 70001])
def test_sums_of_more_than_32_bits_hold(k):
    products = Products("int8")
    a = np.ones((3, k), np.float32)
    a[1] = -1.0
    c = multiplied(products, a, np.ones((k, 33), np.float32))
    np.testing.assert_allclose(c, np.array([[k], [-k], [k]]) * np.ones(33), rtol=1e-6)
    rng = np.random.default_rng(k)
    assert_near(*(rng.normal(size=size).astype(np.float32) for size in ((2, k), (k, 5))), 2.0**-8)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_column_with_a_number_that_is_not_finite_has_no_sums(bad):
    b = np.ones((40, 33), np.float32)
    b[7, 5] = bad
    c = multiplied(Products("int8"), np.ones((2, 40), np.float32), b)
    assert np.isnan(c[:, 5]).all()
    np.testing.assert_allclose(np.delete(c, 5, axis=1), 40.0, rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_with_a_number_that_is_not_finite_has_no_sums(bad):
    a = np.ones((9, 41), np.float32)
    a[7, 40] = bad
    c = multiplied(Products("int8"), a, np.ones((41, 33), np.float32))
    assert not np.isfinite(c[7]).any()
    np.testing.assert_allclose(np.delete(c, 7, axis=0), 41.0, rtol=1e-6)


def test_zeros_give_zeros_and_numbers_too_small_for_a_step_count_as_such():
    products, rng = Products("int8"), np.random.default_rng(0)
    a, b = (rng.normal(size=size).astype(np.float32) for size in ((4, 50), (50, 35)))
    a[0] = 0.0
    b[:, 3], b[:, 4] = 0.0, 1e-37
    a[1] = 1e-40
    c = multiplied(products, a, b)
    assert (np.abs(c[:2]) < 1e-36).all()
    assert (c[0] == 0.0).all()
    assert (c[:, 3:5] == 0.0).all()


@needs_dot_products
def test_the_smallest_and_the_largest_rows_keep_their_size():
    a = np.ones((3, 64), np.float32) * np.array([[1e-35], [1.0], [3.4e38]], np.float32)
    c = multiplied(Products("int8"), a, np.full((64, 8), 0.01, np.float32))
    np.testing.assert_allclose(c / a[:, :1], 0.64, rtol=1e-4)


@needs_dot_products
def test_what_bfloat16_would_round_away_is_counted():
    a, b = np.full((1, 32), 1.0 + 2.0**-10, np.float32), np.ones((32, 1), np.float32)
    assert abs(multiplied(Products("int8"), a, b)[0, 0] - a.sum()) < 1e-4


def test_eight_bits_take_half_the_room_of_bfloat16():
    rooms = [Products(precision).room(162, 16, 4096, 4096) for precision in ("bfloat16", "int8")]
    assert rooms[0] == 2 * 4096 * 4096
    assert rooms[1] < 0.51 * rooms[0]


SAME_BITS = """
import numpy as np
from support.bf16_products import Products

products, rng = Products("int8"), np.random.default_rng(0)
for k, n in ((576, 1536), (1536, 576), (802, 33)):
    a, b = rng.normal(size=(250, k)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32)
    packed, whole = products.lay_out(b), np.empty((250, n), np.float32)
    products.multiply_packed(a, packed, whole)
    for m in (1, 2, 5, 6, 7, 8, 13, 64, 121):
        c = np.empty((m, n), np.float32)
        products.multiply_packed(a[:m], packed, c)
        assert (c == whole[:m]).all(), (k, n, m)
    print(whole.tobytes().hex()[:4000])
"""


def run_python(*arguments, **environment):
    environment = os.environ | {"PYTHONPATH": "tests"} | environment
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def test_a_row_has_the_same_bits_whatever_the_rows_and_threads():
    printed = [run_python("-c", SAME_BITS, OMP_NUM_THREADS=threads) for threads in ("1", "2", "3")]
    assert printed[0]
    assert printed[0] == printed[1] == printed[2]


@pytest.mark.slow
def test_a_processor_without_dot_products_passes_these_tests_too(tmp_path):
    compiler = " ".join([*find_compiler(), "-DGRRM_PLAIN_PRODUCTS"])
    pytest_here = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", __file__)
    said = run_python(*pytest_here, CXX=compiler, XDG_CACHE_HOME=str(tmp_path))
    assert "2 skipped" in said  # what needs the dot products, and nothing else
