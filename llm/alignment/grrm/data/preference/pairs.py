"""Preference pairs from scored samples: of each source the best candidate and the worst, where they differ enough."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm

from grrm.data.convert import ConversionReport, RejectedRow
from grrm.data.converters.output import DEFAULT_SEED, shuffled_order, write_in_order
from grrm.data.layouts.arrow_files import ROWS_PER_BATCH, open_parquet
from grrm.data.parquet import check_parquet
from grrm.data.preference.matrix import language_matrices
from grrm.data.preference.pair_files import check_columns, pair_files
from grrm.errors import UserError

logger = logging.getLogger(__name__)
COPIED = ("src_text", "trg_text", "ref_text", "src_lang", "trg_lang", "ref_lang")
_SIDES = ("winner", "loser")
_MOST = 2.0  # of scores of 0 to 1: a learned metric's leave that range a little


@dataclass(frozen=True)
class PairRules:
    """The conditions for a pair. Raises UserError for rules that cannot be met.

    Considered are the first `use_sampling_num` candidates of a row whose scores lie in `valid_score_range`, both ends
    included. The loser is the first of the lowest score; the winner the first of the highest, if that is at least
    `min_winner_score` and at least `min_margin` above the loser's, and above it.

    `limit_for_each_lang_pair` keeps so many pairs of each file, those with the largest margins, in that order. With
    `to_percentile` scores, of 0 to 1, are multiplied by 100, before all else.
    """

    min_margin: float = 1.0
    valid_score_range: tuple[float, float] | None = None
    limit_for_each_lang_pair: int | None = None
    use_sampling_num: int | None = None
    min_winner_score: float | None = None
    to_percentile: bool = False

    def __post_init__(self) -> None:
        low, high = self.valid_score_range or (0.0, 0.0)
        numbers = (self.min_margin, low, high, self.min_winner_score or 0.0)
        if not all(map(math.isfinite, numbers)) or self.min_margin < 0 or low > high:
            raise UserError(
                f"min_margin {self.min_margin:g}, valid_score_range {low:g} to {high:g}: the margin must be at least "
                "0, the range must rise, and all must be finite numbers"
            )


@dataclass(frozen=True, slots=True)
class PairReport:
    """The pairs that were written, the rows that were read and those left out by file, and the printed matrices."""

    conversion: ConversionReport
    n_rows: int
    n_unscored: int
    matrices: str

    def summary(self) -> str:
        """Report as the original: rows read, and the matrices where both languages are known; then the counts."""
        skipped = f", {self.n_unscored} candidates without a score passed over" if self.n_unscored else ""
        return f"all sample: {self.n_rows}\n{self.matrices}\n{self.conversion.summary()}{skipped}"


def write_pairs(
    folder: Path,
    out: Path,
    *,
    mt_texts_key: str,
    score_key: str,
    rules: PairRules | None = None,
    columns: dict[str, str] | None = None,
    seed: int = DEFAULT_SEED,
) -> PairReport:
    """Write the pairs of all language-pair files of `folder` to one parquet file, shuffled.

    Columns: winner_text, winner_score, winner_raw_score, winner_key, the same of the loser, and those of `columns`,
    which maps names of COPIED to columns of the files. A row is left out, logged and counted if its lists or a text of
    `columns` are missing, its lists differ in length, or a score is NaN or infinite; a null score or text is a
    candidate passed over.

    Memory: a batch of rows, and all pairs. Raises UserError for a file without the columns or with other types, for an
    `out` that is not .parquet, and when there is no pair at all.
    """
    check_parquet(out, "pairs")
    rules, columns = rules or PairRules(), columns or {}
    files = pair_files(folder)
    contents = {
        mt_texts_key: "lists of texts",
        score_key: "lists of numbers",
        **dict.fromkeys(columns.values(), "text"),
    }
    for path in files:
        check_columns(path, contents, "sample and score it first, or name yours with the options")
    builder = _PairBuilder(mt_texts_key, score_key, rules, columns)
    tables = [builder.of_file(path) for path in tqdm(files, desc="pairs", unit="file", disable=None)]
    table = pa.concat_tables(tables).combine_chunks()
    if not table.num_rows:
        why = f"; the first row left out: {builder.rejected[0].reason}" if builder.rejected else ""
        raise UserError(f"{folder} gives no pair from {builder.n_rows} rows{why}; ask for a smaller margin")
    order = shuffled_order(table.num_rows, seed)
    report = write_in_order(out, pair_schema(columns), order, lambda rows: table.take(pa.array(rows)), builder.rejected)
    return PairReport(report, builder.n_rows, builder.n_unscored, _matrices(table))


def pair_schema(columns: dict[str, str]) -> pa.Schema:
    """The columns of the pairs, for those copied from the files."""
    kinds = {"text": pa.string(), "score": pa.float64(), "raw_score": pa.float64(), "key": pa.string()}
    own = [(f"{side}_{name}", kind) for side in _SIDES for name, kind in kinds.items()]
    return pa.schema([*own, *((name, pa.string()) for name in COPIED if name in columns)])


def _matrices(table: pa.Table) -> str:
    if not {"src_lang", "trg_lang"} <= set(table.column_names):
        return f"Total samples: {table.num_rows}"
    counted = table.group_by(["src_lang", "trg_lang"]).aggregate([([], "count_all")]).to_pylist()
    return language_matrices({(str(row["src_lang"]), str(row["trg_lang"])): row["count_all"] for row in counted})


class _PairBuilder:
    """Makes the pairs of one file after another and counts what it could not use."""

    def __init__(self, mt_texts_key: str, score_key: str, rules: PairRules, columns: dict[str, str]) -> None:
        self._mt_texts_key, self._score_key, self._rules = mt_texts_key, score_key, rules
        self._columns = {name: columns[name] for name in COPIED if name in columns}
        self._schema = pair_schema(columns)
        self.n_rows = self.n_unscored = 0
        self.rejected: list[RejectedRow] = []

    def of_file(self, path: Path) -> pa.Table:
        """The file's pairs, in the order of its rows, or with a limit by falling margin."""
        with open_parquet(path) as file:
            if not file.metadata.num_rows:
                return self._schema.empty_table()
            self.n_rows += file.metadata.num_rows
            names = list(dict.fromkeys((self._mt_texts_key, self._score_key, *self._columns.values())))
            batches = file.iter_batches(batch_size=ROWS_PER_BATCH, columns=names, use_threads=False)
            table = pa.concat_tables([self._schema.empty_table(), *self._of_batches(path, batches)])
        if self._rules.limit_for_each_lang_pair is None:
            return table
        margins = np.subtract(table["winner_score"].to_numpy(), table["loser_score"].to_numpy())
        widest = np.argsort(-margins, kind="stable")[: self._rules.limit_for_each_lang_pair]
        return table.take(pa.array(widest))

    def _of_batches(self, path: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        first = 1
        for batch in batches:
            reasons = _row_faults(batch, self._mt_texts_key, self._score_key, list(self._columns.values()))
            for at in sorted(reasons):
                self.rejected.append(RejectedRow(first + at, f"{path.name}: {reasons[at]}"))
                logger.warning("%s row %d left out: %s", path, first + at, reasons[at])
            sound = np.delete(np.arange(batch.num_rows), list(reasons))
            yield self._of_batch(path, batch.take(pa.array(sound)))
            first += batch.num_rows

    def _of_batch(self, path: Path, batch: pa.RecordBatch) -> pa.Table:
        lists = batch.column(self._score_key)
        texts = batch.column(self._mt_texts_key).flatten()
        values = _floats(lists.flatten())
        rows = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False).astype(np.int64)
        usable = pc.and_(pc.is_valid(values), pc.is_valid(texts)).to_numpy(zero_copy_only=False)
        self.n_unscored += int(np.count_nonzero(~usable))
        scores = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
        if self._rules.to_percentile:
            if (most := scores.max(initial=0.0)) > _MOST:
                raise UserError(
                    f"{path} has the score {most:g} in {self._score_key}, and to_percentile is for scores of 0 to 1: "
                    "those of `grrm rank` are 0 to 10, so leave it out and divide margin, range and minimum by ten"
                )
            scores = scores * 100
        positions = np.arange(len(rows)) - np.searchsorted(rows, rows)
        winners, losers = best_and_worst(rows, positions, scores, usable, self._rules)
        return self._table(batch, texts, scores, rows, winners, losers)

    def _table(
        self,
        batch: pa.RecordBatch,
        texts: pa.Array,
        scores: npt.NDArray[np.float64],
        rows: npt.NDArray[np.int64],
        winners: npt.NDArray[np.int64],
        losers: npt.NDArray[np.int64],
    ) -> pa.Table:
        key = pa.repeat(pa.scalar(self._mt_texts_key), len(winners))
        sides = [
            column
            for chosen in (winners, losers)
            for column in (texts.take(pa.array(chosen)), pa.array(scores[chosen]), pa.array(scores[chosen]), key)
        ]
        copied = batch.take(pa.array(rows[winners]))
        return pa.table(
            [*sides, *(copied.column(name) for name in self._columns.values())], names=self._schema.names
        ).cast(self._schema)


def best_and_worst(
    rows: npt.NDArray[np.int64],
    positions: npt.NDArray[np.int64],
    scores: npt.NDArray[np.float64],
    usable: npt.NDArray[np.bool_],
    rules: PairRules,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Positions of the winner and of the loser of every row that gives a pair, among all candidates.

    All arrays have one entry per candidate: its row, rising; its position in the row; its score; whether it counts.
    """
    if rules.use_sampling_num is not None:
        usable = usable & (positions < rules.use_sampling_num)
    if rules.valid_score_range is not None:
        low, high = rules.valid_score_range
        usable = usable & (scores >= low) & (scores <= high)
    counted = np.flatnonzero(usable)
    if not len(counted):
        return counted, counted
    starts = np.flatnonzero(np.diff(rows[counted], prepend=-1))
    losers = _first_lowest(scores[counted], rows[counted], starts)
    winners = _first_lowest(-scores[counted], rows[counted], starts)
    winners, losers = counted[winners], counted[losers]
    margins = scores[winners] - scores[losers]
    makes_pair = (margins >= rules.min_margin) & (margins > 0)
    if rules.min_winner_score is not None:
        makes_pair &= scores[winners] >= rules.min_winner_score
    return winners[makes_pair], losers[makes_pair]


def _first_lowest(
    values: npt.NDArray[np.float64], rows: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Of each row the position of its lowest value, the first of equals; rows begin at `starts`."""
    lengths = np.diff(np.append(starts, len(values)))
    is_lowest = values == np.repeat(np.minimum.reduceat(values, starts), lengths)
    lowest = np.flatnonzero(is_lowest)
    _, first = np.unique(rows[lowest], return_index=True)
    return lowest[first]


def _floats(values: pa.Array) -> pa.Array:
    """Half floats in single precision: pyarrow computes nothing with them."""
    return values.cast(pa.float32()) if pa.types.is_float16(values.type) else values


def _row_faults(batch: pa.RecordBatch, mt_texts_key: str, score_key: str, copied: list[str]) -> dict[int, str]:
    """Position in the batch -> why the row cannot be used."""
    faults: dict[int, str] = {}
    texts, scores = batch.column(mt_texts_key), batch.column(score_key)
    for name, noun in ((mt_texts_key, "a list"), (score_key, "a list"), *((name, "text") for name in copied)):
        for at in pc.indices_nonzero(pc.is_null(batch.column(name))).to_pylist():
            faults.setdefault(at, f"{name} is not {noun}")
    n_texts, n_scores = pc.list_value_length(texts), pc.list_value_length(scores)
    for at in pc.indices_nonzero(pc.fill_null(pc.not_equal(n_texts, n_scores), False)).to_pylist():
        faults.setdefault(at, f"{n_texts[at]} texts but {n_scores[at]} scores")
    for at in pc.indices_nonzero(pc.fill_null(pc.equal(n_texts, 0), False)).to_pylist():
        faults.setdefault(at, "no candidates")
    values = _floats(scores.flatten())
    if pa.types.is_floating(values.type):
        wrong = pc.fill_null(pc.invert(pc.is_finite(values)), False)
        for at in pc.unique(pc.list_parent_indices(scores).filter(wrong)).to_pylist():
            faults.setdefault(at, f"{score_key} holds a value that is not a finite number")
    return faults
