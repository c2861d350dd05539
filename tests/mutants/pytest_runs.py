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
    """Notes for each test: the lines it touches, how long it takes, whether it passes, whether it starts a process."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self.measured = measured
        self.tests: dict[str, dict[str, Any]] = defaultdict(lambda: {"seconds": 0.0, "passed": True, "starts": False})
        self.current = ""
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.current and event in {"subprocess.Popen", "os.fork", "os.posix_spawn"}:
            self.tests[self.current]["starts"] = True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.current = item.nodeid
        self.measured.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self.current = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tests[report.nodeid]["seconds"] += report.duration
        self.tests[report.nodeid]["passed"] &= report.outcome == "passed"


def measure_tests(folder: Path, file: str, package: Path) -> None:
    """Run a test file; write its tests, and which of them touch which lines, to `folder / "result.json"`.

    Lines that importing touches, before any test, have the name "".
    """
    measured = coverage.Coverage(data_file=str(folder / "coverage"), config_file=False, source_dirs=[str(package)])
    measured.start()
    watcher = _Watcher(measured)
    _pytest(folder, [file], watcher)
    measured.stop()
    data = measured.get_data()
    lines = {
        str(Path(path).relative_to(package)): dict(data.contexts_by_lineno(path))
        for path in data.measured_files()
        if data.lines(path)
    }
    (folder / "result.json").write_text(json.dumps({"tests": watcher.tests, "lines": lines}))


class _Selection:
    def __init__(self, tests: Sequence[str]) -> None:
        self.rank = {name: number for number, name in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self.rank), key=lambda item: self.rank[item.nodeid])


def run_tests(folder: Path, tests: Sequence[str]) -> None:
    """Run tests in this order until one fails; write pytest's exit status to `folder / "result.json"`."""
    files = list(dict.fromkeys(name.split("::")[0] for name in tests))
    status = _pytest(folder, files, _Selection(tests), extra=["-x"])
    (folder / "result.json").write_text(json.dumps(status))
