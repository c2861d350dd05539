"""The READMEs show what the benchmarks have measured, and nothing else."""

from __future__ import annotations

import pytest


@pytest.fixture
def readme_tables(import_benchmark):
    return import_benchmark("readme_tables")


@pytest.mark.parametrize("name", ["README.md", "README_zh.md"])
def test_readmes_have_the_tables_of_the_committed_results(readme_tables, name):
    text = (readme_tables.ROOT / name).read_text(encoding="utf-8")
    assert readme_tables.with_tables(text, readme_tables.READMES[name]) == text, "run benchmarks/readme_tables.py"


def test_a_readme_without_the_place_is_told(readme_tables):
    with pytest.raises(ValueError, match="benchmarks"):
        readme_tables.with_tables("# Title\n", "en")
