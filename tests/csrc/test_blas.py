"""The BLAS of the kernels: found in paddle's wheel, or said to be missing."""

from __future__ import annotations

import importlib.util

import pytest

from grrm_csrc import blas


@pytest.fixture(autouse=True)
def looked_up_anew():
    blas.sgemm_address.cache_clear()
    yield
    blas.sgemm_address.cache_clear()


def test_an_address_comes_from_the_first_library_that_has_the_function(monkeypatch):
    if blas.sgemm_address() is None:
        pytest.skip("this wheel of paddle brings no BLAS that is known")
    found = blas.sgemm_address()
    blas.sgemm_address.cache_clear()
    monkeypatch.setattr(blas, "_LIBRARIES", ("libmissing.so", *blas._LIBRARIES))
    assert blas.sgemm_address() == found


def test_a_wheel_without_a_known_blas_is_told(monkeypatch):
    monkeypatch.setattr(blas, "_LIBRARIES", ("libmissing.so",))
    assert blas.sgemm_address() is None


def test_without_paddle_there_is_no_blas(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert blas.sgemm_address() is None
