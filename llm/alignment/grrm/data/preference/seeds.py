"""Seed data of the preference pipeline: sentence pairs by language pair, each source once.

A file that is there is left as it is: it may have been sampled and scored already, and a run that was stopped goes on
with the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tqdm import tqdm

from grrm.data.atomic import atomic_path
from grrm.data.convert import RejectedRow
from grrm.data.converters.intake import read_usable
from grrm.data.parquet import SCHEMA
from grrm.data.preference.pair_files import pair_file
from grrm.gqm.languages import TOWER_LANGS, language_code

HUB = "en"
OTHERS = tuple(language for language in TOWER_LANGS if language != HUB)
X2X_SCHEMA = pa.schema([(name, pa.string()) for name in ("src_text", "ref_text", "src_lang", "trg_lang", "ref_lang")])
RowsOf = Callable[[pa.Table, str, str], pa.Table]  # the rows of a pair of languages, from those of the input


@dataclass(frozen=True, slots=True)
class SeedReport:
    """The files that were written with their rows, those that were there before, and the rows left out of the input."""

    written: dict[Path, int]
    existing: tuple[Path, ...]
    rejected: tuple[RejectedRow, ...]
    n_other_pairs: int

    def summary(self) -> str:
        """One line: files and rows written, files kept, rows left out."""
        return (
            f"{sum(self.written.values())} rows written to {len(self.written)} files, {len(self.existing)} files kept "
            f"as they were; of the input {len(self.rejected)} rows could not be used and {self.n_other_pairs} are of "
            "other language pairs"
        )


def write_rm_seed(parquet: Path, out_dir: Path) -> SeedReport:
    """Write `{lang}2en.parquet` and `en2{lang}.parquet` for the nine languages beside English in TOWER_LANGS.

    Columns src_text, trg_text, src_lang, trg_lang; of rows with the same source the first is kept. A pair without rows
    gives an empty file. Memory: the input's four columns once. Raises UserError as `read_usable` does, and for a
    folder that cannot be written to.
    """

    def rows(table: pa.Table, src_lang: str, trg_lang: str) -> pa.Table:
        return _first_of_source(_of_pair(table, src_lang, trg_lang)).cast(SCHEMA)

    pairs = [pair for language in OTHERS for pair in ((language, HUB), (HUB, language))]
    return _write_files(parquet, out_dir, pairs, rows)


def write_x2x_seed(parquet: Path, out_dir: Path) -> SeedReport:
    """Write a file for every ordered pair of the nine languages: sources to translate with an English version of each.

    Columns src_text, ref_text, src_lang, trg_lang, ref_lang, which is `en`. Sources are those of the rows into English,
    then the targets of the rows out of it, each once. Otherwise like `write_rm_seed`.
    """
    anchored: dict[str, pa.Table] = {}

    def rows(table: pa.Table, src_lang: str, trg_lang: str) -> pa.Table:
        if src_lang not in anchored:
            anchored[src_lang] = _anchored(table, src_lang)
        return _x2x_rows(anchored[src_lang], src_lang, trg_lang)

    return _write_files(parquet, out_dir, list(permutations(OTHERS, 2)), rows)


def _write_files(parquet: Path, out_dir: Path, pairs: Sequence[tuple[str, str]], rows_of: RowsOf) -> SeedReport:
    intake = read_usable(
        parquet, {"src_text": "text", "trg_text": "text", "src_lang": "language", "trg_lang": "language"}
    )
    table, written, existing = _with_codes(intake.table), dict[Path, int](), list[Path]()
    for src_lang, trg_lang in tqdm(pairs, desc="seed files", unit="file", disable=None):
        path = pair_file(out_dir, src_lang, trg_lang)
        if path.exists():
            existing.append(path)
            continue
        rows = rows_of(table, src_lang, trg_lang)
        with atomic_path(path) as temporary:
            pq.write_table(rows, temporary)
        written[path] = rows.num_rows
    return SeedReport(written, tuple(existing), intake.rejected, table.num_rows - _n_with_hub(table))


def _with_codes(table: pa.Table) -> pa.Table:
    """The rows with the codes of their languages, which some files call by their names."""
    for name in ("src_lang", "trg_lang"):
        column = table[name].combine_chunks().dictionary_encode()
        codes = pa.array(map(language_code, column.dictionary.to_pylist()), column.type.value_type)
        table = table.set_column(table.schema.get_field_index(name), name, codes.take(column.indices))
    return table


def _of_pair(table: pa.Table, src_lang: str, trg_lang: str) -> pa.Table:
    return table.filter(pc.and_(pc.equal(table["src_lang"], src_lang), pc.equal(table["trg_lang"], trg_lang)))


def _n_with_hub(table: pa.Table) -> int:
    """Rows between English and one of the nine."""
    src, trg, others = table["src_lang"], table["trg_lang"], pa.array(OTHERS)
    into = pc.and_(pc.equal(trg, HUB), pc.is_in(src, others.cast(src.type)))
    out_of = pc.and_(pc.equal(src, HUB), pc.is_in(trg, others.cast(trg.type)))
    return int(pc.sum(pc.or_(into, out_of)).as_py() or 0)


def _first_of_source(table: pa.Table) -> pa.Table:
    """The rows whose src_text has not occurred before, in order."""
    codes = table["src_text"].combine_chunks().dictionary_encode()
    _, first = np.unique(codes.indices.to_numpy(zero_copy_only=False), return_index=True)
    return table.take(pa.array(np.sort(first)))


def _anchored(table: pa.Table, language: str) -> pa.Table:
    """Texts of the language with their English versions."""
    into, out_of = _of_pair(table, language, HUB), _of_pair(table, HUB, language)
    sources = pa.chunked_array([*into["src_text"].chunks, *out_of["trg_text"].chunks], into["src_text"].type)
    anchors = pa.chunked_array([*into["trg_text"].chunks, *out_of["src_text"].chunks], into["trg_text"].type)
    return _first_of_source(pa.table({"src_text": sources, "ref_text": anchors}))


def _x2x_rows(sources: pa.Table, src_lang: str, trg_lang: str) -> pa.Table:
    languages = [pa.repeat(pa.scalar(name), sources.num_rows) for name in (src_lang, trg_lang, HUB)]
    return pa.table([sources["src_text"], sources["ref_text"], *languages], names=X2X_SCHEMA.names).cast(X2X_SCHEMA)
