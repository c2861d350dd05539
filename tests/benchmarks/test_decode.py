"""The comparison of engines leaves out what a processor would only emulate."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("native", [True, False])
def test_what_a_processor_would_only_emulate_is_not_compared(decode, monkeypatch, native):
    monkeypatch.setattr("grrm_csrc.blas.is_native", lambda precision: native and precision == "bfloat16")
    names = ("ours-fp32", "ours-bf16", "ours-bf16-2ranks", "ours-int8")
    assert [decode.is_supported(name) for name in names] == [True, native, native, False]
