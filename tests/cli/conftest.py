"""`grrm rank` in this process."""

from __future__ import annotations

import json

import pytest
from support.command_line import invoke


@pytest.fixture
def rank(tmp_path):
    """`grrm rank` on rows, or on text; the rows with what it added. Raises what it raises."""

    def run(rows, *options, **environment):
        is_text = isinstance(rows, str)
        path, out = tmp_path / ("rows.txt" if is_text else "rows.jsonl"), tmp_path / "out.jsonl"
        path.write_text(rows if is_text else "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        run.told = invoke("rank", path, "--out", out, *options, **environment).output
        return [json.loads(line) for line in out.read_text().splitlines()]

    return run
