"""The harness itself, run on small vectors with adapters of its own: what it must report, it reports."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

ADAPTERS = """
FIXED = {
    "same": lambda row: row["give"],
    "pair": lambda row: {"scores": (row["a"], row["b"]), "rest": 0},
    "fails": lambda row: {}[row["key"]],
    "where": lambda row, context: [context.golden_dir.name, context.row["extra"]],
}
COMPAT = {"pair": lambda row: {"scores": [0, 0], "rest": 0}, "old": lambda row: row}
"""
ROWS = {
    "pass": [
        {"fn": "same", "input": {"give": [1, 2.0]}, "expected": [1.0000001, 2]},
        {"fn": "same", "input": {"give": [{"a": None}, "x", True]}, "expected": [{"a": None}, "x", True]},
        {"fn": "same", "input": {"give": float("nan")}, "expected": float("nan")},
        {"fn": "same", "input": {"give": 3}, "expected": 1, "quirk": True, "expected_fixed": 3},
        {
            "fn": "pair",
            "input": {"a": 1, "b": 2},
            "expected": {"scores": [0, 0], "rest": 0},
            "quirk": True,
            "expected_fixed_scores": [1, 2],
        },
        {"fn": "fails", "input": {"key": 1}, "expected": {"__error__": "KeyError"}},
        {"fn": "where", "input": {}, "extra": 5, "expected": ["vectors", 5]},
        {"fn": "old", "input": {"x": 1}, "expected": {"x": 1}, "quirk": True},
    ],
    "fail": [
        {"fn": "same", "input": {"give": 1.00001}, "expected": 1.0},
        {"fn": "same", "input": {"give": 1}, "expected": True},
        {"fn": "same", "input": {"give": None}, "expected": float("nan")},
        {"fn": "same", "input": {"give": [1]}, "expected": [1, 2]},
        {"fn": "same", "input": {"give": {"a": 1}}, "expected": {"b": 1}},
        {"fn": "same", "input": {"give": 1}, "expected": {"__error__": "KeyError"}},
        {"fn": "fails", "input": {"key": 1}, "expected": {"__error__": "ValueError"}},
        {"fn": "fails", "input": {"key": 1}, "expected": 1},
        {"fn": "pair", "input": {"a": 0, "b": 1}, "expected": {"scores": [0, 1], "rest": 0}},
    ],
    "skip": [
        {"fn": "same", "input": {"give": 3}, "expected": 1, "quirk": True},
        {"fn": "unknown.fn", "input": {}, "expected": 1},
        {"fn": "unknown.fn", "input": {}, "expected": 2},
    ],
}


@pytest.fixture
def harness(tmp_path):
    """A copy of the harness beside small adapters; call it with pytest's arguments."""
    for name in ("conftest.py", "test_golden.py"):
        shutil.copy(HERE / name, tmp_path)
    (tmp_path / "adapters").mkdir()
    (tmp_path / "adapters" / "small.py").write_text(ADAPTERS, encoding="utf-8")
    (tmp_path / "vectors").mkdir()

    def run(*arguments):
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "-c", "/dev/null", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    return run


def write(folder, rows):
    folder.mkdir(exist_ok=True)
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def test_every_row_is_reported_for_what_it_is(harness, tmp_path):
    rows = [row | {"id": f"{kind}-{i}"} for kind, rows in ROWS.items() for i, row in enumerate(rows)]
    write(tmp_path / "vectors", rows)
    done = harness(".", "--golden-dir", "vectors")
    assert done.returncode == 1
    passed, failed = (
        {
            line.split("[")[1].split("]")[0]
            for line in done.stdout.splitlines()
            if line.startswith(f"{word} ") and "[" in line
        }
        for word in ("PASSED", "FAILED")
    )
    assert passed == {row["id"] for row in rows if row["id"].startswith("pass")}
    assert failed == {row["id"] for row in rows if row["id"].startswith("fail")}
    assert done.stdout.count("no adapter for fn unknown.fn") == 1
    assert "quirk, no fixed value" in done.stdout
    assert "2 skipped" in done.stdout


def test_an_adapter_that_cannot_be_imported_fails_instead_of_hiding_its_rows(harness, tmp_path):
    write(tmp_path / "vectors", [{"id": "one", "fn": "same", "input": {"give": 1}, "expected": 1}])
    (tmp_path / "adapters" / "broken.py").write_text("import no_such_module_here\n", encoding="utf-8")
    done = harness(".", "--golden-dir", "vectors")
    assert done.returncode == 1
    assert "FAILED test_golden.py::test_every_adapter_file_imports" in done.stdout
    assert "no_such_module_here" in done.stdout


def test_a_folder_without_rows_is_a_usage_error(harness, tmp_path):
    done = harness(".", "--golden-dir", "vectors")
    assert (done.returncode, "no *.jsonl file with a row in it" in done.stderr) == (4, True)
    done = harness(".", "--golden-dir", "nowhere")
    assert (done.returncode, "nowhere: there is no such folder" in done.stderr) == (4, True)


def test_a_damaged_row_is_a_usage_error_that_names_the_line(harness, tmp_path):
    (tmp_path / "vectors" / "rows.jsonl").write_text('\n{"id": "x"}\n', encoding="utf-8")
    done = harness(".", "--golden-dir", "vectors")
    assert done.returncode == 4
    assert "rows.jsonl, line 2: the row lacks expected, fn, input" in done.stderr
