"""The committed measurement is of this script, and two tensor ranks need little more than half of what one needs."""

from __future__ import annotations

import json


def test_two_tensor_ranks_grow_by_at_most_six_tenths_of_what_one_process_grows_by(import_benchmark):
    benchmark = import_benchmark("tensor_memory")
    result = json.loads(benchmark.RESULT.read_text())
    assert result["model"] == benchmark.SHAPE
    assert [row["layout"] for row in result["rows"]] == list(benchmark.LAYOUTS)
    alone, *divided = (row["growth_mib"] for row in result["rows"])
    assert all(growth <= 0.6 * alone for growth in divided)
