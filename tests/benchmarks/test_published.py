"""Every published number is in benchmarks/results: the tables of README and docs, and sentences about them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MEASURED = [
    "README.md",
    "README_zh.md",
    *(f"docs/{name}.md" for name in ("results", "real", "probe", "benchmarks", "answers", "train")),
]
MEASUREMENT = re.compile(r"\| [+-]?\d{1,3}\.\d")  # four digits and a dot are arXiv's


def flat(text):
    """Without line breaks, marks of emphasis and rows of spaces."""
    return re.sub(r"\s+", " ", text.replace("**", "").replace("│", "│ "))


@pytest.mark.parametrize("page", [*MEASURED, "docs/server.md"])
def test_the_page_has_the_tables_of_the_results(page_tables, page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert page_tables.with_results(ROOT / page) == text, "run benchmarks/page_tables.py"


def test_every_table_of_decimals_is_one_of_them(page_tables):
    for page in MEASURED:
        text = (ROOT / page).read_text(encoding="utf-8")
        for table in page_tables.PUBLISHED:
            if table.page == page:
                text = type(table)(table.page, table.after, list).written(text)
        before, _, rest = text.partition(page_tables.BEGIN)
        rows = [line for line in (before + rest.partition(page_tables.END)[2]).splitlines() if line.startswith("|")]
        assert not [row for row in rows if MEASUREMENT.search(row)], page


def test_the_pages_say_what_the_results_say(import_benchmark):
    for page, said in import_benchmark("statements").statements():
        assert flat(said) in flat((ROOT / page).read_text(encoding="utf-8")), page


def test_a_changed_result_changes_the_table_and_a_missing_table_is_told(import_benchmark, tmp_path, monkeypatch):
    published = import_benchmark("published")
    policies = published.result("real_policies")
    policies["seeds"]["1"]["policies"]["sft"]["scores"]["sampled"]["chrf"] = 12.34
    (tmp_path / "real_policies.json").write_text(json.dumps(policies))
    monkeypatch.setattr(published, "RESULTS", tmp_path)
    table = published.PUBLISHED[0]
    text = "\n<!-- results -->\n\n| policy | reward | sampled | greedy |\n|---|---|---|---|\n| old |\n\nEnd\n"
    assert "| SFT | | 12.3 | " in table.written(text)
    assert table.written(text).endswith("\n\nEnd\n")
    with pytest.raises(ValueError, match=r"README.md has no table after '<!-- results -->'"):
        table.written("# Title\n")


# --- docs/benchmarks.md shows what the benchmarks have measured, and nothing else


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
