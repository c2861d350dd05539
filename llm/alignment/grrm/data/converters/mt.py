"""Both stages of the translation policy: responses to learn, and prompts for group-relative training."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from grrm.data.convert import ConversionReport
from grrm.data.converters.intake import TASK, read_usable
from grrm.data.converters.output import (
    DEFAULT_SEED,
    MESSAGES,
    SFT_SCHEMA,
    Order,
    conversation,
    shuffled_order,
    write_in_order,
)
from grrm.data.documents import LOCATION, file_locations, with_location
from grrm.errors import UserError
from grrm.gqm.languages import TOWER_LANGS, language_code
from grrm.gqm.mt_prompts import mt_prompt

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
    intake = read_usable(parquet, {**TASK, response_key: "text"})

    def build(rows: Order) -> pa.Table:
        chats = [
            conversation(mt_prompt(row["src_text"], row["src_lang"], row["trg_lang"]), row[response_key].strip())
            for row in intake.table.take(rows).to_pylist()
        ]
        return pa.table([pa.array(chats, MESSAGES)], schema=SFT_SCHEMA)

    return write_in_order(out, SFT_SCHEMA, shuffled_order(intake.table.num_rows, seed), build, intake.rejected)


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
    intake = read_usable(parquet, {**TASK, "trg_text": "text" if testset else "reference"})
    of_file = file_locations(parquet)
    locations = [of_file[number - 1] for number in intake.numbers()] if of_file else []
    n_rows = intake.table.num_rows
    rows = np.arange(n_rows) if testset else shuffled_order(n_rows, seed)
    targets = np.full(n_rows, _OWN_TARGET, dtype=np.int8)
    if cross_lingual:
        rows, targets = _augment(parquet, intake.table, rows, testset, compat, seed)

    schema = with_location(TEST_SCHEMA if testset else TRAIN_SCHEMA, LOCATION if locations else ())

    def build(positions: Order) -> pa.Table:
        batch = intake.table.take(rows[positions]).to_pylist()
        built = [
            _row(values, target, compat) for values, target in zip(batch, targets[positions].tolist(), strict=True)
        ]
        if locations:
            for row, number in zip(built, rows[positions].tolist(), strict=True):
                row |= dict(zip(LOCATION, locations[number], strict=True))
        return pa.Table.from_pylist(built, schema)

    order = shuffled_order(len(rows), seed) if cross_lingual else np.arange(len(rows))
    return write_in_order(out, schema, order, build, intake.rejected)


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


def _row(values: Mapping[str, str | None], target: int, keep_reference: bool) -> dict[str, Any]:
    """A row of a test set; one for training has no column reward_model. `target` as in `_augment`."""
    is_own, info = target == _OWN_TARGET, {**values}
    if not is_own:
        info["trg_lang"] = TOWER_LANGS[target]
    if not (is_own or keep_reference) or not (info["trg_text"] or "").strip():
        info["trg_text"] = None
    return {
        "prompt": conversation(mt_prompt(str(info["src_text"]), str(info["src_lang"]), str(info["trg_lang"]))),
        "ability": "translation",
        "data_source": "towerblocks",
        "extra_info": info,
        "reward_model": {"style": "rule", "ground_truth": info["trg_text"]},
    }
