"""The converter benchmark compares conversions of the same rows, and notices when they are not the same."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.mark.slow
@pytest.mark.parametrize(("name", "n_rows"), [("convert_rows", 50), ("preference_pairs", 200)])
def test_both_forms_write_the_same_rows_and_are_measured(import_benchmark, tmp_path, capsys, name, n_rows):
    benchmark = import_benchmark(name)
    benchmark.main(["--rows", str(n_rows), "--repeats", "1", "--out", str(tmp_path / "result.json")])
    result = json.loads((tmp_path / "result.json").read_text())
    for part in (result[name] for name in (benchmark.CONVERTERS if name == "convert_rows" else benchmark.STAGES)):
        assert part["speed_up"] > 0
        assert all(part[form]["rows_per_cpu_s"] > 0 and part[form]["peak_mb"] > 0 for form in ("row", "column"))
    assert result["rows"] == n_rows
    assert "rows per CPU-second" in capsys.readouterr().out


@pytest.mark.parametrize("other", [[1, 3], [1]])
def test_different_rows_are_an_error(convert_rows, tmp_path, other):
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path, values in zip(paths, ([1, 2], other), strict=True):
        pq.write_table(pa.table({"value": values}), path)
    with pytest.raises(ValueError, match="differ"):
        convert_rows.require_same_rows(*paths)


# --- the benchmark of the preference stages compares runs that write the same rows


def test_the_row_wise_form_makes_the_pairs_of_the_rules(import_benchmark, tmp_path):
    benchmark = import_benchmark("preference_pairs")
    sources = benchmark.write_input(tmp_path, 60)
    found = []
    for number, stage in enumerate(("pairs", "pair-instructions", "clean-samples")):
        outs = [tmp_path / f"{number}.{form}{'' if stage == 'clean-samples' else '.parquet'}" for form in "ab"]
        for run, out in zip(benchmark.STAGES[stage], outs, strict=True):
            run(sources[stage], out)
        benchmark._require_same(*outs)
        found.append(outs[0])
    assert all(out.exists() for out in found)
