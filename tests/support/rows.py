"""Rows of data: small inputs for the converters and what they make of them, and groups that train a judge."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from grrm.data.convert import ConversionReport
from grrm.data.parquet import iter_raw_rows

Converter = Callable[..., ConversionReport]
Row = dict[str, Any]
WORDS = ["am", "fünften", "Mai", "kostet", "das", "Zimmer", "zwölf", "Euro", "und", "drei", "Kilometer", "weiter"]


def write_jsonl(path: Path, rows: Iterable[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_parquet(path: Path, rows: list[Row]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def converted(convert: Converter, rows: list[Row], folder: Path, **settings: Any) -> list[Row]:
    return rows_of(convert(write_parquet(folder / "in.parquet", rows), folder / "out.parquet", **settings))


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


def annotated_groups(corpus: Path, parquet: Path, n_groups: int) -> Path:
    """A parquet file of groups: a translation's words in reverse, the translation itself, and the source as it is."""
    return write_parquet(parquet, list(islice(_rows(corpus), n_groups)))


def _rows(corpus: Path) -> Iterator[dict[str, Any]]:
    for _, (source, reference, src_lang, trg_lang) in iter_raw_rows(corpus):
        yield {
            "src_text": source,
            "src_lang": src_lang,
            "trg_lang": trg_lang,
            "mt_texts": [" ".join(reversed(reference.split())), reference, source],
            "scores": [4, 9, 1],
            "analysis": "One is right.",
        }


def scored_rows(n_rows: int, seed: int = 0, size: int = 4) -> list[dict[str, Any]]:
    """Groups of texts; a text's gold, 0 to 100, is the share of its words that are "gut", all of a group different."""
    rng = random.Random(seed)
    rows = []
    for number in range(n_rows):
        shares = rng.sample(range(9), size)
        texts = []
        for n_good in shares:
            words = ["gut"] * n_good + rng.choices(WORDS, k=8 - n_good)
            rng.shuffle(words)
            texts.append(" ".join(words))
        rows.append(
            {
                "src_text": f"source {number} of {n_rows}",
                "src_lang": "en",
                "trg_lang": ("de", "es")[number % 2],
                "mt_texts": texts,
                "scores": [100 * n_good / 8 for n_good in shares],
            }
        )
    return rows
