"""Annotated groups made of a small corpus, for the stages that train a judge."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from grrm.data.parquet import iter_raw_rows


def annotated_groups(corpus: Path, parquet: Path, n_groups: int) -> Path:
    """A parquet file of groups: a translation's words in reverse, the translation itself, and the source as it is."""
    pq.write_table(pa.Table.from_pylist(list(islice(_rows(corpus), n_groups))), parquet)
    return parquet


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
