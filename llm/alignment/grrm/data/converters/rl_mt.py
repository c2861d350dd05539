"""Prompts for group-relative training of the translation policy, plain or with cross-lingual augmentation (CLA)."""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from grrm.data.convert import ConversionReport
from grrm.data.converters.intake import read_usable
from grrm.data.converters.prompt_columns import mt_prompt_column
from grrm.data.converters.shuffled import DEFAULT_SEED, MESSAGES, Order, conversation, shuffled_order, write_in_order
from grrm.errors import UserError
from grrm.gqm.languages import TOWER_LANGS, language_code

logger = logging.getLogger(__name__)

COLUMNS = ("src_lang", "trg_lang", "src_text", "trg_text")
TRAIN_SCHEMA = pa.schema(
    [
        ("prompt", MESSAGES),
        ("ability", pa.string()),
        ("data_source", pa.string()),
        ("extra_info", pa.struct([(name, pa.string()) for name in COLUMNS])),
    ]
)
TEST_SCHEMA = TRAIN_SCHEMA.append(
    pa.field("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())]))
)
Targets = npt.NDArray[np.int8]
_OWN_TARGET = -1  # in a column of indexes into TOWER_LANGS: the row keeps its own target language


def convert_rl_mt(
    parquet: Path,
    out: Path,
    *,
    cross_lingual: bool = False,
    testset: bool = False,
    compat: bool = False,
    seed: int = DEFAULT_SEED,
) -> ConversionReport:
    """Write prompt, ability, data_source and extra_info; with `testset` also reward_model, whose truth is trg_text.

    Rows are shuffled, those of a test set kept in order. `cross_lingual` (the original's `construct_towerx`) adds for
    each row one into a language drawn from the others of TOWER_LANGS, and shuffles once more; a row with a language
    outside TOWER_LANGS gets none and the number of these is logged. Added rows have null for trg_text and
    ground_truth, because the reference is in another language; `compat` leaves it there, as the original did.
    Raises UserError as `read_usable` does, and if no row at all could be augmented (`compat`: if any could not).
    """
    intake = read_usable(
        parquet, {"src_lang": "language", "trg_lang": "language", "src_text": "text", "trg_text": "text"}
    )
    n_rows = intake.table.num_rows
    rows_N = np.arange(n_rows) if testset else shuffled_order(n_rows, seed)
    targets_N = np.full(n_rows, _OWN_TARGET, dtype=np.int8)
    if cross_lingual:
        rows_N, targets_N = _augment(parquet, intake.table, rows_N, testset, compat, seed)

    schema = TEST_SCHEMA if testset else TRAIN_SCHEMA

    def build(places_B: Order) -> pa.Table:
        batch = intake.table.take(rows_N[places_B])
        return _rows(batch, targets_N[places_B], schema, keep_reference=compat)

    order_N = shuffled_order(len(rows_N), seed) if cross_lingual else np.arange(len(rows_N))
    written = write_in_order(out, schema, order_N, build)
    return ConversionReport(out, written, intake.rejected)


def _augment(
    parquet: Path, table: pa.Table, rows_N: Order, testset: bool, compat: bool, seed: int
) -> tuple[Order, Targets]:
    """The rows followed by the added ones, and the drawn target of each (`_OWN_TARGET` for the original rows)."""
    drawn_N = _draw_targets(table, seed)
    added_M = np.flatnonzero(drawn_N != _OWN_TARGET)
    skipped = table.num_rows - len(added_M)
    if not len(added_M) or (compat and skipped):
        raise UserError(
            f"{parquet} has {skipped} rows with a language outside {' '.join(TOWER_LANGS)}, which cross-lingual "
            "augmentation cannot use; convert it without"
        )
    if skipped:
        logger.warning("%s: %d rows not augmented, a language is not in %s", parquet, skipped, " ".join(TOWER_LANGS))
    if not testset:
        added_M = added_M[shuffled_order(len(added_M), seed)]
    own_N = np.full(len(rows_N), _OWN_TARGET, dtype=np.int8)
    return np.concatenate([rows_N, added_M]), np.concatenate([own_N, drawn_N[added_M]])


def _draw_targets(table: pa.Table, seed: int) -> Targets:
    """For each row of the file, in its order, an index into TOWER_LANGS, or `_OWN_TARGET` where none can be drawn."""
    draw = Random(seed)
    drawn_N = np.full(table.num_rows, _OWN_TARGET, dtype=np.int8)
    others: dict[tuple[str, str], list[int]] = {}
    for row, pair in enumerate(zip(table["src_lang"].to_pylist(), table["trg_lang"].to_pylist(), strict=True)):
        if pair not in others:
            others[pair] = _third_languages(*map(language_code, pair))
        if others[pair]:
            drawn_N[row] = draw.choice(others[pair])
    return drawn_N


def _third_languages(src_lang: str, trg_lang: str) -> list[int]:
    if src_lang not in TOWER_LANGS or trg_lang not in TOWER_LANGS:
        return []
    return [index for index, language in enumerate(TOWER_LANGS) if language not in (src_lang, trg_lang)]


def _rows(batch: pa.Table, targets_B: Targets, schema: pa.Schema, keep_reference: bool) -> pa.Table:
    src_lang, trg_lang, source, reference = (column.combine_chunks() for column in batch.columns)
    own_B = targets_B == _OWN_TARGET
    drawn = pa.array(TOWER_LANGS, trg_lang.type).take(pa.array(targets_B, mask=own_B))
    trg_lang = pc.coalesce(drawn, trg_lang)
    if not keep_reference:
        reference = pc.if_else(pa.array(own_B), reference, pa.scalar(None, reference.type))
    columns = [
        conversation(mt_prompt_column(source, src_lang, trg_lang)),
        pa.repeat(pa.scalar("translation"), len(own_B)),
        pa.repeat(pa.scalar("towerblocks"), len(own_B)),
        pa.StructArray.from_arrays([src_lang, trg_lang, source, reference], list(COLUMNS)),
    ]
    if "reward_model" in schema.names:
        style = pa.repeat(pa.scalar("rule"), len(own_B))
        columns.append(pa.StructArray.from_arrays([style, reference], ["style", "ground_truth"]))
    return pa.table(columns, names=schema.names)
