"""How many tokens every pass of the C++ decoder runs."""

from __future__ import annotations

import pytest


@pytest.fixture
def tokens_of_passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets a number for each pass."""
    from grrm.models import cpu_kernels

    counts: list[int] = []
    call = cpu_kernels.call

    def counted(name, *given):
        if name == "grrm_decode":
            counts.append(len(given[4]))
        return call(name, *given)

    monkeypatch.setattr(cpu_kernels, "call", counted)
    return counts
