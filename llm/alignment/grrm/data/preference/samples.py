"""Cleaning of sampled translations, in place: what follows an end token is cut off, and copies are left out.

A cleaned file is cleaned again without a change, so a run that was stopped is simply started again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tqdm import tqdm

from grrm.data.atomic import atomic_path
from grrm.data.convert import RejectedRow, log_rejected
from grrm.data.layouts.arrow_files import ROWS_PER_BATCH, open_parquet
from grrm.data.preference.pair_files import check_columns, is_list, pair_files

END_TOKEN = "</s>"


@dataclass(frozen=True, slots=True)
class CleaningReport:
    """The result of cleaning a file: candidates before, candidates removed, and rows without any candidate."""

    path: Path
    n_candidates: int
    n_removed: int
    rejected: tuple[RejectedRow, ...]

    def summary(self) -> str:
        """One line."""
        return (
            f"file: {self.path.name}, removed item: {self.n_removed}/{self.n_candidates}, "
            f"rows left out: {len(self.rejected)}"
        )


def clean_sample_files(
    folder: Path, *, text_key: str = "mt_texts", single_line: bool = False, part_id: int = 0, device_num: int = 1
) -> list[CleaningReport]:
    """Clean the lists of texts in `text_key` of the folder's language-pair files, each rewritten in one atomic step.

    Texts end at their end token, and each is kept once, in the order in which they were first seen; with `single_line`
    they are stripped, with `; ` in the place of each newline inside. Null candidates are removed too, empty ones are
    not.

    Other lists of the file that are as long as the candidates in every row (statuses, scores) lose the same members.
    Rows without a candidate are left out, logged and counted. Memory: a batch of rows.

    Raises UserError as `pair_files` does, and for a file that is not parquet or whose `text_key` is missing or no list
    of texts.
    """
    files = pair_files(folder, part_id, device_num)
    for path in files:
        check_columns(path, {text_key: "lists of text"}, "sample it first or name yours")
    return [
        _clean_file(path, text_key, single_line)
        for path in tqdm(files, desc="clean samples", unit="file", disable=None)
    ]


def _clean_file(path: Path, text_key: str, single_line: bool) -> CleaningReport:
    rejected: list[RejectedRow] = []
    n_before = n_after = 0
    with open_parquet(path) as file:
        if not file.metadata.num_rows:
            return CleaningReport(path, 0, 0, ())
        beside = _lists_as_long(file, text_key)
        with atomic_path(path) as temporary, pq.ParquetWriter(temporary, file.schema_arrow) as writer:
            first = 1
            for batch in file.iter_batches(batch_size=ROWS_PER_BATCH, use_threads=False):
                table = pa.Table.from_batches([batch])
                cleaned, has_candidates, n_in, n_out = _clean_batch(table, text_key, single_line, beside)
                n_before, n_after = n_before + n_in, n_after + n_out
                rejected.extend(RejectedRow(first + int(at), "no candidates") for at in np.flatnonzero(~has_candidates))
                writer.write_table(cleaned.filter(pa.array(has_candidates)).cast(file.schema_arrow))
                first += batch.num_rows
    log_rejected(path, rejected)
    return CleaningReport(path, n_before, n_before - n_after, tuple(rejected))


def _lists_as_long(file: pq.ParquetFile, text_key: str) -> list[str]:
    """The other list columns whose lists are as long as the candidates in every row."""
    lists = [field.name for field in file.schema_arrow if is_list(field.type) and field.name != text_key]
    if not lists:
        return lists
    for batch in file.iter_batches(batch_size=ROWS_PER_BATCH, columns=[text_key, *lists], use_threads=False):
        lengths = _lengths(batch, text_key)
        lists = [name for name in lists if _lengths(batch, name).equals(lengths)]
    return lists


def _lengths(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Of large lists pyarrow gives another type, which equals no other."""
    return pc.list_value_length(batch.column(name)).cast(pa.int64())


def _clean_batch(
    table: pa.Table, text_key: str, single_line: bool, beside: Sequence[str]
) -> tuple[pa.Table, npt.NDArray[np.bool_], int, int]:
    """The cleaned rows, which of them have a candidate, and the number of candidates before and after."""
    column = table[text_key].combine_chunks()
    texts = column.flatten()
    if pa.types.is_null(texts.type):  # a file with nothing but nulls
        texts = texts.cast(pa.string())
    rows = pc.list_parent_indices(column).to_numpy(zero_copy_only=False).astype(np.int64)
    cut = _cut_at_end_token(texts)
    if single_line:
        cut = pc.replace_substring(pc.utf8_trim_whitespace(cut), "\n", "; ")
    keep = _first_in_row(cut, rows)
    lengths = np.bincount(rows[keep], minlength=table.num_rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    indices = pa.array(np.flatnonzero(keep))
    for name, values in ((text_key, cut), *((name, table[name].combine_chunks().flatten()) for name in beside)):
        lists = pa.ListArray.from_arrays(pa.array(offsets), values.take(indices))
        table = table.set_column(table.schema.get_field_index(name), name, lists)
    return table, lengths > 0, len(texts), int(keep.sum())


def _cut_at_end_token(texts: pa.Array) -> pa.Array:
    has_token = pc.fill_null(pc.match_substring(texts, END_TOKEN), False)
    if not pc.any(has_token).as_py():
        return texts
    return pc.replace_with_mask(
        texts, has_token, pc.replace_substring_regex(texts.filter(has_token), f"(?s){END_TOKEN}.*", "")
    )


def _first_in_row(texts: pa.Array, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """True where a text has not occurred earlier in its row; never for a null."""
    codes = texts.dictionary_encode().indices
    valid = pc.is_valid(codes).to_numpy(zero_copy_only=False)
    keys = rows[valid] * max(len(texts), 1) + pc.drop_null(codes).to_numpy(zero_copy_only=False)
    _, first = np.unique(keys, return_index=True)
    keep = np.zeros(len(texts), dtype=np.bool_)
    keep[np.flatnonzero(valid)[first]] = True
    return keep
