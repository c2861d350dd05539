"""How many tokens every pass of the C++ decoder runs."""

from __future__ import annotations

import pytest

from grrm.models import cpu_kernels


def tokens_of_passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Watch the kernels from here on; the list gets a number for each pass."""
    counts: list[int] = []
    call = cpu_kernels.call

    def counted(name, *given):
        if name == "grrm_decode":
            counts.append(len(given[4]))
        return call(name, *given)

    monkeypatch.setattr(cpu_kernels, "call", counted)
    return counts
