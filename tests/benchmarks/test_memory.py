"""The plan of a device's memory beside a process that trains."""

from __future__ import annotations

import json

import pytest


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_process_grows_about_as_planned(import_benchmark, tmp_path):
    memory = import_benchmark("memory")
    memory.main(["--cases", "alone-512", "--out", str(tmp_path / "memory.json")])
    (row,) = json.loads((tmp_path / "memory.json").read_text())["rows"]
    assert abs(row["error"]) < 0.3
    assert row["measured_mib"] > 1500, "gradients and states of 135 million weights alone"


def test_the_results_kept_are_of_all_cases_and_within_15_percent(import_benchmark):
    memory = import_benchmark("memory")
    rows = json.loads(memory.RESULT.read_text())["rows"]
    assert [row["name"] for row in rows] == [case.name for case in memory.CASES]
    for row, case in zip(rows, memory.CASES, strict=True):
        assert row["planned_mib"] == pytest.approx(memory.plan(case) / memory.MIB, abs=1), "the plan has changed"
        assert abs(row["planned_mib"] / row["measured_mib"] - 1) < 0.15
