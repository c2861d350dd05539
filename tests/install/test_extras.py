"""What the extras ask for: one Paddle at most, and only where it is named."""

from __future__ import annotations

from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = "paddle-grrm"
EXTRAS = metadata.metadata(PROJECT).get_all("Provides-Extra")


def requirements(distribution: str, extra: str = "") -> dict[str, Requirement]:
    """What a distribution asks for with an extra, without those that ask for nothing here."""
    try:
        stated = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:
        return {}
    found = [Requirement(line) for line in stated]
    kept = [one for one in found if one.marker is None or one.marker.evaluate({"extra": extra})]
    return {canonicalize_name(one.name): one for one in kept}


def all_names(extra: str) -> set[str]:
    """Every distribution that an installation with this extra brings, as far as those are installed here."""
    seen: set[str] = set()
    waiting = list(requirements(PROJECT, extra).values())
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if name not in seen:
            seen.add(name)
            for part in ("", *one.extras):
                waiting += requirements(name, part).values()
    return seen


@pytest.mark.parametrize("extra", EXTRAS)
def test_no_extra_but_cpu_brings_the_cpus_paddle(extra: str) -> None:
    assert ("paddlepaddle" in all_names(extra)) == (extra == "cpu")
    assert ("paddlepaddle-gpu" in all_names(extra)) == (extra == "gpu")


def test_gpu_is_cpu_with_the_other_paddle_of_the_same_version() -> None:
    cpu, gpu = requirements(PROJECT, "cpu"), requirements(PROJECT, "gpu")
    assert cpu.pop("paddlepaddle").specifier == gpu.pop("paddlepaddle-gpu").specifier == "==3.3.1"
    assert {name: one.specifier for name, one in cpu.items()} == {name: one.specifier for name, one in gpu.items()}
