"""Which tests can notice a mutant: those that touch its lines, the quickest first."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mutants.changes import Mutant
from mutants.forked import run_forked, scratch_folder
from mutants.overlay import ROOT
from mutants.pytest_runs import measure_tests

MEASURE_S = 1800.0
PROCESSES_S = 20.0  # of tests that start processes, after which no more of them are tried on a mutant


@dataclass(frozen=True)
class Touched:
    """What the quick tests of a room touch, by test file: see `measure_tests`."""

    files: dict[str, dict[str, Any]]

    def tests_for(self, mutant: Mutant) -> list[str]:
        """Names of the tests that run a mutant's lines; where an import does, of those that run any of the module's."""
        names: set[str] = set()
        for record in self.files.values():
            for line, touching in record["lines"].get(mutant.module, {}).items():
                if mutant.at_import or mutant.lines[0] <= int(line) <= mutant.lines[1]:
                    names.update(touching)
        return self._in_order(names)

    def tests_of_processes(self, mutant: Mutant) -> list[str]:
        """Names of the tests of files whose processes run a mutant's lines; the quickest files, up to a limit."""
        own = set(range(mutant.lines[0], mutant.lines[1] + 1))
        running = [record for record in self.files.values() if own & set(record["outside"].get(mutant.module, []))]
        names: list[str] = []
        for record in sorted(running, key=lambda record: self.seconds(list(record["tests"]))):
            names += self._in_order(set(record["tests"]))
            if self.seconds(names) > PROCESSES_S:
                break
        return names

    def _in_order(self, names: set[str]) -> list[str]:
        """Those of them that pass without a mutant; a file's tests follow each other, the quickest file first."""
        by_file = []
        for record in self.files.values():
            tests = {name: test for name, test in record["tests"].items() if name in names and test["passed"]}
            if tests:
                by_file.append((sum(test["seconds"] for test in tests.values()) / len(tests), list(tests)))
        return [name for _, tests in sorted(by_file) for name in tests]

    def seconds(self, tests: Sequence[str]) -> float:
        """Seconds that tests take without a mutant."""
        every = {name: test["seconds"] for record in self.files.values() for name, test in record["tests"].items()}
        return float(sum(every[name] for name in tests))


def measure(test_files: Sequence[str], package: Path, cache: Path) -> Touched:
    """Run test files under coverage, one child each; what was measured of the same sources is read from `cache`."""
    records = {}
    for file in test_files:
        path = cache / f"{_digest(ROOT / file)}.json"
        record = json.loads(path.read_text()) if path.exists() else None
        if record is None or record["sources"] != _sources(record, package):
            record = _measured(file, package)
            cache.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(record))
        records[file] = record
    return Touched(records)


def _measured(file: str, package: Path) -> dict[str, Any]:
    record: dict[str, Any] = {"tests": {}, "lines": {}, "outside": {}}
    with scratch_folder() as folder:
        run_forked(partial(measure_tests, file=file, package=package), folder, MEASURE_S, MEASURE_S)
        if (folder / "result.json").exists():
            record = json.loads((folder / "result.json").read_text())
        else:
            print(f"{file} was not measured: {(folder / 'log').read_text()[-600:]}", flush=True)
    return record | {"sources": _sources(record, package)}


def _sources(record: dict[str, Any], package: Path) -> dict[str, str]:
    """Digests of the modules that a record knows; another digest makes its line numbers worthless."""
    modules = sorted({*record["lines"], *record["outside"]})
    return {module: _digest(package / module) if (package / module).exists() else "" for module in modules}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]
