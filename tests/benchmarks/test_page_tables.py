"""docs/benchmarks.md shows what the benchmarks have measured, and nothing else."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def page_tables(import_benchmark):
    return import_benchmark("page_tables")


def test_the_page_has_the_tables_of_the_committed_results(page_tables):
    text = page_tables.PAGE.read_text(encoding="utf-8")
    assert page_tables.with_tables(text) == text, "run benchmarks/page_tables.py"


def test_a_page_without_the_place_is_told(page_tables):
    with pytest.raises(ValueError, match="benchmarks"):
        page_tables.with_tables("# Title\n")


def test_token_scores_are_told_relative_to_all_logits_in_torch(page_tables, tmp_path, monkeypatch):
    ours = {"seconds_relative_to_torch": 0.5, "peak_mb_relative_to_torch": 0.125, "seconds": 2.0, "peak_mb": 100.0}
    torch = {"seconds_relative_to_torch": 1.0, "peak_mb_relative_to_torch": 1.0, "seconds": 4.0, "peak_mb": 800.0}
    rows = [{"engine": "ours-chunked", **ours}, {"engine": "torch", **torch}]
    result = {"rows": [{"model": "SmolLM2-135M", "tokens": 4096, **row} for row in rows]}
    (tmp_path / "logprob.json").write_text(json.dumps(result), encoding="utf-8")
    monkeypatch.setattr(page_tables, "RESULTS", tmp_path)
    lines = page_tables.tables().splitlines()
    assert lines[2:] == [
        "| ours-chunked | 2.0 s (0.50 of torch's), 100 MB (0.12) |",
        "| torch | 4.0 s, 800 MB |",
    ]
