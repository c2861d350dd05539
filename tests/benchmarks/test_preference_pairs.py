"""The benchmark of the preference stages compares runs that write the same rows, and notices when they do not."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def benchmark(import_benchmark):
    return import_benchmark("preference_pairs")


@pytest.mark.slow
def test_both_forms_write_the_same_rows_and_are_measured(benchmark, tmp_path, capsys):
    benchmark.main(["--rows", "200", "--repeats", "1", "--out", str(tmp_path / "result.json")])
    result = json.loads((tmp_path / "result.json").read_text())
    for part in (result[name] for name in benchmark.STAGES):
        assert part["speed_up"] > 0
        assert all(part[form]["rows_per_cpu_s"] > 0 and part[form]["peak_mb"] > 0 for form in ("row", "column"))
    assert result["rows"] == 200
    assert "rows per CPU-second" in capsys.readouterr().out


@pytest.mark.parametrize("other", [[1, 3], [1]])
def test_different_rows_are_an_error(benchmark, tmp_path, other):
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path, values in zip(paths, ([1, 2], other), strict=True):
        pq.write_table(pa.table({"value": values}), path)
    with pytest.raises(ValueError, match="differ"):
        benchmark.require_same_rows(*paths)


def test_the_row_wise_form_makes_the_pairs_of_the_rules(benchmark, tmp_path):
    sources = benchmark.write_input(tmp_path, 60)
    for number, stage in enumerate(benchmark.STAGES):
        outs = [tmp_path / f"{number}.{form}{'' if stage == 'clean-samples' else '.parquet'}" for form in "ab"]
        for run, out in zip(benchmark.STAGES[stage], outs, strict=True):
            run(sources[stage], out)
        benchmark.require_same_output(*outs)
        assert outs[0].exists()
