"""Both stages of the translation policy: responses to learn, and prompts for group-relative training."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from grrm.data.convert import ConversionReport
from grrm.data.converters.intake import read_usable
from grrm.data.converters.output import DEFAULT_SEED, MESSAGES, Order, conversation, shuffled_order, write_in_order
from grrm.data.converters.prompt_columns import mt_prompt_column
from grrm.data.documents import LOCATION, file_locations, with_location
from grrm.errors import UserError
from grrm.gqm.languages import TOWER_LANGS, language_code

SFT_SCHEMA = pa.schema([("messages", MESSAGES)])
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


def convert_sft_mt(
    parquet: Path, out: Path, *, response_key: str = "response", seed: int = DEFAULT_SEED
) -> ConversionReport:
    """Write `messages`: the codeblock-think prompt as user, the stripped response as assistant.

    Needs columns src_text, src_lang, trg_lang and `response_key`. Raises UserError as `read_usable` does.
    """
    intake = read_usable(
        parquet, {"src_text": "text", "src_lang": "language", "trg_lang": "language", response_key: "text"}
    )

    def build(rows: Order) -> pa.Table:
        batch = intake.table.take(rows)
        prompts = mt_prompt_column(*(batch[name].combine_chunks() for name in ("src_text", "src_lang", "trg_lang")))
        stripped = pa.array([response.strip() for response in batch[response_key].to_pylist()], pa.string())
        return pa.table([conversation(prompts, stripped)], schema=SFT_SCHEMA)

    written = write_in_order(out, SFT_SCHEMA, shuffled_order(intake.table.num_rows, seed), build)
    return ConversionReport(out, written, intake.rejected)


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

    Rows are shuffled, those of a test set kept in order; document and position are carried over. Without trg_text a row
    has no reference, which only metrics need; a test set needs it.

    `cross_lingual` (the original's `construct_towerx`) adds for each row one into a language drawn from the others of
    TOWER_LANGS, and shuffles once more; a row with a language outside TOWER_LANGS gets none and the number of these is
    logged. Added rows have null for trg_text and ground_truth, because the reference is in another language; `compat`
    leaves it there, as the original did.

    Raises UserError as `read_usable` does, and if no row at all could be augmented (`compat`: if any could not).
    """
    intake = read_usable(
        parquet,
        {
            "src_lang": "language",
            "trg_lang": "language",
            "src_text": "text",
            "trg_text": "text" if testset else "reference",
        },
    )
    of_file = file_locations(parquet)
    locations = [of_file[number - 1] for number in intake.numbers()] if of_file else []
    n_rows = intake.table.num_rows
    rows = np.arange(n_rows) if testset else shuffled_order(n_rows, seed)
    targets = np.full(n_rows, _OWN_TARGET, dtype=np.int8)
    if cross_lingual:
        rows, targets = _augment(parquet, intake.table, rows, testset, compat, seed)

    schema = with_location(TEST_SCHEMA if testset else TRAIN_SCHEMA, LOCATION if locations else ())

    def build(positions: Order) -> pa.Table:
        batch = intake.table.take(rows[positions])
        location = _location_columns(locations, rows[positions])
        return _rows(batch, targets[positions], location, schema, keep_reference=compat)

    order = shuffled_order(len(rows), seed) if cross_lingual else np.arange(len(rows))
    written = write_in_order(out, schema, order, build)
    return ConversionReport(out, written, intake.rejected)


def _augment(
    parquet: Path, table: pa.Table, rows: Order, testset: bool, compat: bool, seed: int
) -> tuple[Order, Targets]:
    """The rows followed by the added ones, and the drawn target of each (`_OWN_TARGET` for the original rows)."""
    sampled = _draw_targets(table, seed)
    added = np.flatnonzero(sampled != _OWN_TARGET)
    skipped = table.num_rows - len(added)
    if not len(added) or (compat and skipped):
        raise UserError(
            f"{parquet} has {skipped} rows with a language outside {' '.join(TOWER_LANGS)}, which cross-lingual "
            "augmentation cannot use; convert it without"
        )
    if skipped:
        logger.warning("%s: %d rows not augmented, a language is not in %s", parquet, skipped, " ".join(TOWER_LANGS))
    if not testset:
        added = added[shuffled_order(len(added), seed)]
    own_targets = np.full(len(rows), _OWN_TARGET, dtype=np.int8)
    return np.concatenate([rows, added]), np.concatenate([own_targets, sampled[added]])


def _draw_targets(table: pa.Table, seed: int) -> Targets:
    """For each row of the file, in its order, an index into TOWER_LANGS, or `_OWN_TARGET` where none can be drawn."""
    draw = Random(seed)
    targets = np.full(table.num_rows, _OWN_TARGET, dtype=np.int8)
    others: dict[tuple[str, str], list[int]] = {}
    for row, pair in enumerate(zip(table["src_lang"].to_pylist(), table["trg_lang"].to_pylist(), strict=True)):
        if pair not in others:
            others[pair] = _third_languages(*map(language_code, pair))
        if others[pair]:
            targets[row] = draw.choice(others[pair])
    return targets


def _third_languages(src_lang: str, trg_lang: str) -> list[int]:
    if src_lang not in TOWER_LANGS or trg_lang not in TOWER_LANGS:
        return []
    return [index for index, language in enumerate(TOWER_LANGS) if language not in (src_lang, trg_lang)]


def _location_columns(locations: Sequence[Sequence[Any]], rows: Order) -> list[pa.Array]:
    """Document and position of the rows; no column where the file has none."""
    columns = zip(*(locations[row] for row in rows.tolist()), strict=True) if locations else ()
    return [pa.array(values, kind) for values, kind in zip(columns, (pa.string(), pa.int64()), strict=False)]


def _rows(
    batch: pa.Table, targets: Targets, location: list[pa.Array], schema: pa.Schema, keep_reference: bool
) -> pa.Table:
    src_lang, trg_lang, source, reference = (column.combine_chunks() for column in batch.columns)
    is_own = targets == _OWN_TARGET
    sampled = pa.array(TOWER_LANGS, trg_lang.type).take(pa.array(targets, mask=is_own))
    trg_lang = pc.coalesce(sampled, trg_lang)
    reference = pc.if_else(pc.equal(pc.utf8_trim_whitespace(reference), ""), pa.scalar(None, reference.type), reference)
    if not keep_reference:
        reference = pc.if_else(pa.array(is_own), reference, pa.scalar(None, reference.type))
    columns = [
        conversation(mt_prompt_column(source, src_lang, trg_lang)),
        pa.repeat(pa.scalar("translation"), len(is_own)),
        pa.repeat(pa.scalar("towerblocks"), len(is_own)),
        pa.StructArray.from_arrays([src_lang, trg_lang, source, reference], list(COLUMNS)),
    ]
    if "reward_model" in schema.names:
        style = pa.repeat(pa.scalar("rule"), len(is_own))
        columns.append(pa.StructArray.from_arrays([style, reference], ["style", "ground_truth"]))
    return pa.table(columns + location, names=schema.names)
