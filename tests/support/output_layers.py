"""Choosing the form of an output layer, and the tokens of its chunks, whatever this machine would take."""

from __future__ import annotations

import pytest

from grrm.models import output_layer
from grrm.models.cpu_kernels import available
from grrm_csrc.blas import sgemm_address

FORMS = ("kernels", "operators")


def use_form(monkeypatch: pytest.MonkeyPatch, form: str) -> str:
    """Take this form; the test is skipped where there are no kernels."""
    if form == "kernels" and (not available() or sgemm_address() is None):
        pytest.skip("needs a compiler and the BLAS of paddle's wheel")
    if form == "operators":
        monkeypatch.setattr(output_layer, "is_fused", lambda _: False)
    return form


def set_chunk_tokens(monkeypatch: pytest.MonkeyPatch, tokens: int) -> None:
    for layer in (output_layer.KernelOutputLayer, output_layer.OperatorOutputLayer):
        monkeypatch.setattr(layer, "chunk_tokens", tokens)
