"""What children do: measure which tests touch which lines, or run some tests until one fails."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import coverage
import hypothesis
import pytest

QUICK = "not slow and not scale"


class _NoShrinking:
    """One failing example is enough here; the simplest one takes a while to look for."""

    def pytest_configure(self) -> None:
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile("no shrinking", hypothesis.settings(), phases=phases)
        hypothesis.settings.load_profile("no shrinking")


def _pytest(folder: Path, files: Sequence[str], *plugins: object, extra: Sequence[str] = ()) -> int:
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(folder / "hypothesis")
    off = [argument for name in ("cacheprovider", "xdist", "pytest_cov") for argument in ("-p", f"no:{name}")]
    options = ["-q", "-m", QUICK, "--hypothesis-seed=0", f"--basetemp={folder / 'tmp'}"]
    return int(pytest.main([*off, *options, *extra, *files], plugins=[*plugins, _NoShrinking()]))


def load_tests(folder: Path, files: Sequence[str]) -> None:
    """Import test files; write the names of what was imported, in that order, to `folder / "result.json"`."""
    before = set(sys.modules)
    _pytest(folder, files, extra=["--collect-only"])
    names = [name for name, module in sys.modules.items() if name not in before and getattr(module, "__spec__", None)]
    (folder / "result.json").write_text(json.dumps(names))


class _Watcher:
    """Notes how long each test takes, and whether it passes; tells coverage which one runs."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self.measured = measured
        self.tests: dict[str, dict[str, Any]] = defaultdict(lambda: {"seconds": 0.0, "passed": True})

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.measured.switch_context(item.nodeid)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tests[report.nodeid]["seconds"] += report.duration
        self.tests[report.nodeid]["passed"] &= report.outcome == "passed"


def measure_tests(folder: Path, file: str, package: Path) -> None:
    """Run a test file; write what its tests touch to `folder / "result.json"`.

    tests: name to seconds and whether it passes. lines: module to line to the names of the tests that touch it here;
    lines that importing touches, before any test, have the name "". outside: module to the lines that processes touch
    which the tests start.
    """
    options = ["[run]", f"source_dirs = {package}", f"data_file = {folder / 'outside'}", "parallel = true"]
    (folder / "coveragerc").write_text("\n".join([*options, "sigterm = true"]))
    os.environ["COVERAGE_PROCESS_START"] = str(folder / "coveragerc")
    measured = coverage.Coverage(data_file=str(folder / "coverage"), config_file=False, source_dirs=[str(package)])
    measured.start()
    watcher = _Watcher(measured)
    _pytest(folder, [file], watcher)
    measured.stop()
    lines = {
        module: dict(data.contexts_by_lineno(path))
        for data in [measured.get_data()]
        for path, module in _touched(data, package)
    }
    outside: dict[str, set[int]] = defaultdict(set)
    for part in folder.glob("outside.*"):
        data = coverage.CoverageData(str(part))
        data.read()
        for path, module in _touched(data, package):
            outside[module].update(data.lines(path) or [])
    result = {"tests": watcher.tests, "lines": lines, "outside": {name: sorted(some) for name, some in outside.items()}}
    (folder / "result.json").write_text(json.dumps(result))


def _touched(data: coverage.CoverageData, package: Path) -> list[tuple[str, str]]:
    """Paths and module names of the files in which a line was touched."""
    return [(path, str(Path(path).relative_to(package))) for path in data.measured_files() if data.lines(path)]


class _Selection:
    """Runs some tests of the files, in their order; remembers which one failed."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.rank = {name: number for number, name in enumerate(tests)}
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self.rank), key=lambda item: self.rank[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid


def run_tests(folder: Path, tests: Sequence[str]) -> None:
    """Run tests in this order until one fails; write its name, or "", to `folder / "result.json"`."""
    files = list(dict.fromkeys(name.split("::")[0] for name in tests))
    selection = _Selection(tests)
    status = _pytest(folder, files, selection, extra=["-x"])
    (folder / "result.json").write_text(json.dumps(selection.failed or ("" if status == 0 else f"exit {status}")))
