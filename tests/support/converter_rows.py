"""Small inputs for the converters, and what they make of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from grrm.data.convert import ConversionReport

Converter = Callable[..., ConversionReport]
Row = dict[str, Any]


def write(path: Path, rows: list[Row]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def converted(convert: Converter, rows: list[Row], folder: Path, **settings: Any) -> list[Row]:
    return rows_of(convert(write(folder / "in.parquet", rows), folder / "out.parquet", **settings))


def rows_of(report: ConversionReport) -> list[Row]:
    rows: list[Row] = pq.read_table(report.path).to_pylist()
    assert len(rows) == report.written
    return rows


def group(**changed: Any) -> Row:
    row = {"src_text": "Hi", "src_lang": "en", "trg_lang": "de", "mt_texts": ["a", "b", "c"], "scores": [3, 9, 9]}
    return row | {"analysis": "They differ."} | changed


def pair(**changed: Any) -> Row:
    row = {"src_text": "Hi", "trg_text": "Hallo", "src_lang": "en", "trg_lang": "de", "response": "```\nHallo\n```"}
    return row | changed
