"""`grrm rank` in this process."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from grrm import cli


@pytest.fixture
def rank(tmp_path):
    """`grrm rank` on rows, or on text; the rows with what it added. Raises what it raises."""

    def run(rows, *options):
        is_text = isinstance(rows, str)
        path, out = tmp_path / ("rows.txt" if is_text else "rows.jsonl"), tmp_path / "out.jsonl"
        path.write_text(rows if is_text else "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        arguments = ["rank", path, "--out", out, *options]
        done = CliRunner().invoke(cli.grrm, [*map(str, arguments)], catch_exceptions=False, standalone_mode=False)
        run.told = done.output
        return [json.loads(line) for line in out.read_text().splitlines()]

    return run
