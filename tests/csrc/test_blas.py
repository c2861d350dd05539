"""The BLAS of the kernels: found in paddle's wheel, or said to be missing."""

from __future__ import annotations

import importlib.util

import pytest

from grrm_csrc import blas


@pytest.fixture(autouse=True)
def looked_up_anew():
    blas._library.cache_clear()
    yield
    blas._library.cache_clear()


def test_an_address_comes_from_the_first_library_that_has_the_function(monkeypatch):
    if blas.sgemm_address() is None:
        pytest.skip("this wheel of paddle brings no BLAS that is known")
    found = blas.sgemm_address(), blas.packing_addresses()
    blas._library.cache_clear()
    monkeypatch.setattr(blas, "_LIBRARIES", ("libmissing.so", *blas._LIBRARIES))
    assert (blas.sgemm_address(), blas.packing_addresses()) == found


def test_a_wheel_without_a_known_blas_is_told(monkeypatch):
    monkeypatch.setattr(blas, "_LIBRARIES", ("libmissing.so",))
    assert blas.sgemm_address() is None
    assert blas.packing_addresses() is None


def test_a_blas_that_cannot_pack_is_used_as_it_is(monkeypatch):
    found = blas.sgemm_address()
    monkeypatch.setattr(blas, "_PACKING", ("cblas_sgemm_pack_get_size", "cblas_sgemm_nothing", "cblas_sgemm_compute"))
    assert blas.packing_addresses() is None
    assert blas.sgemm_address() == found


def test_without_paddle_there_is_no_blas(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert blas.sgemm_address() is None
