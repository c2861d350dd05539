"""Benchmarks are scripts that import each other from their own folder; a test imports one as they do."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def import_benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Imports a benchmark by name. It and its helpers are forgotten after the test: their names are plain ones."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module
    for path in BENCHMARKS.glob("*.py"):
        sys.modules.pop(path.stem, None)


def imported(name: str) -> Any:
    """A fixture that is a benchmark, for the tests that have it as an argument."""
    return pytest.fixture(lambda import_benchmark: import_benchmark(name), name=name)


decode, growth, grpo_step = map(imported, ("decode", "growth", "grpo_step"))
joining, judge_group, logprob, parity = map(imported, ("joining", "judge_group", "logprob", "parity"))
page_tables, ranker_step, server = map(imported, ("page_tables", "ranker_step", "server"))
tiny_step, training_forms = map(imported, ("tiny_step", "training_forms"))
