"""Instructions to learn from: a prompt and a translation, or beside it the one to avoid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm

from grrm.data.convert import ConversionReport, RejectedRow
from grrm.data.converters.intake import Intake, read_usable
from grrm.data.converters.output import DEFAULT_SEED, Order, shuffled_order, write_in_order
from grrm.data.layouts.arrow_files import ROWS_PER_BATCH
from grrm.data.parquet import check_parquet
from grrm.errors import UserError
from grrm.gqm.languages import could_be_name
from grrm.gqm.pair_prompts import HOLE, diverse_templates, pair_template

CountTokens = Callable[[list[str]], list[int]]
_SEPARATOR = "\0"
SCHEMA = pa.schema([(name, pa.string()) for name in ("prompt", "chosen", "rejected")])
SFT_SCHEMA = pa.schema([(name, pa.string()) for name in ("prompt", "response")])


@dataclass(frozen=True)
class PairColumns:
    """The columns of texts and languages in a file of pairs."""

    src_text_key: str = "src_text"
    src_lang_key: str = "src_lang"
    trg_lang_key: str = "trg_lang"
    chosen_text_key: str = "winner_text"
    rejected_text_key: str = "loser_text"

    def names(self) -> list[str]:
        """The columns' names, in this order. Raises UserError where two are the same."""
        names = [self.src_text_key, self.src_lang_key, self.trg_lang_key, self.chosen_text_key, self.rejected_text_key]
        if len(set(names)) < len(names):
            raise UserError(f"columns {', '.join(names)} must be different ones; name yours with the options")
        return names


def write_instructions(
    parquet: Path,
    out: Path,
    *,
    columns: PairColumns | None = None,
    count_tokens: CountTokens | None = None,
    max_len: int = 1024,
    diverse_prompt: bool = False,
    seed: int = DEFAULT_SEED,
) -> ConversionReport:
    """Write prompt, chosen and rejected of every pair, shuffled; no chat template is applied.

    The prompt is `pair_template`, or with `diverse_prompt` one of `diverse_templates` drawn with `seed`.

    With `count_tokens` a pair is left out and counted where the prompt and either text, joined by a space, have more
    than `max_len` tokens as it counts them, special tokens included. A row is left out for a missing or empty text, a
    control token, a language that cannot be a name, or where both texts are the same.

    Raises UserError as `read_usable` does, for an `out` that is not .parquet, and when no pair is left.
    """
    check_parquet(out, "pairs")
    names = (columns or PairColumns()).names()

    def faults(batch: pa.Table) -> list[str | None]:
        reasons = _language_faults(batch, names)
        for at in pc.indices_nonzero(pc.fill_null(pc.equal(batch[names[3]], batch[names[4]]), False)).to_pylist():
            reasons[at] = "the chosen text is the rejected one"
        return reasons

    intake = read_usable(parquet, dict.fromkeys(names, "text"), faults)
    prompts = _prompts(intake.table, names, Random(seed) if diverse_prompt else None)
    limit = None if count_tokens is None else Limit(count_tokens, max_len, " ")
    return _write(out, SCHEMA, intake, [prompts, intake.table[names[3]], intake.table[names[4]]], limit, seed)


def write_sft_instructions(
    rows: Path,
    out: Path,
    *,
    src_key: str = "src",
    trg_key: str = "trg",
    count_tokens: CountTokens | None = None,
    max_len: int = 1024,
    seed: int = DEFAULT_SEED,
) -> ConversionReport:
    """Write prompt and response of every sentence pair, shuffled, as EAX's cold start learns them.

    Columns are `src_key` and `trg_key` with `_text` and `_lang`. The prompt is one of `diverse_templates` drawn with
    `seed`. An `out` that is .parquet has no chat template, the lines of a .jsonl file have it. With `count_tokens` a
    pair with more than `max_len` tokens is left out and counted; others as in `write_instructions`.

    Raises UserError as `read_usable` and `write_in_order` do, and when no pair is left.
    """
    names = [f"{src_key}_text", f"{src_key}_lang", f"{trg_key}_lang", f"{trg_key}_text"]
    if src_key == trg_key:
        raise UserError(f"src_key and trg_key are both {src_key!r}; give two prefixes of columns")
    intake = read_usable(rows, dict.fromkeys(names, "text"), lambda batch: _language_faults(batch, names))
    limit = None if count_tokens is None else Limit(count_tokens, max_len, "")
    columns = [_prompts(intake.table, names, Random(seed)), intake.table[names[3]]]
    return _write(out, SFT_SCHEMA, intake, columns, limit, seed)


def _language_faults(batch: pa.Table, names: list[str]) -> list[str | None]:
    """The reason to leave out each row whose second or third column names no language."""
    reasons: list[str | None] = [None] * batch.num_rows
    for name in names[1:3]:
        strange = [
            language
            for language in pc.unique(batch[name]).to_pylist()
            if language is not None and not could_be_name(language)
        ]
        wrong = pc.is_in(batch[name], pa.array(strange, batch[name].type))
        for at in pc.indices_nonzero(wrong).to_pylist():
            reasons[at] = f"{name} is not the name of a language"
    return reasons


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit on the tokens of a prompt and a text behind it, joined by `separator`."""

    count_tokens: CountTokens
    max_len: int
    separator: str


def _write(
    out: Path, schema: pa.Schema, intake: Intake, columns: list[pa.Array], limit: Limit | None, seed: int
) -> ConversionReport:
    wide = pa.schema([(name, pa.large_string()) for name in schema.names])
    table, rejected = pa.table(columns, schema=wide), list(intake.rejected)
    if limit is not None:
        table, too_long = _short_enough(table, limit, intake.numbers())
        rejected += too_long
        if not table.num_rows:
            raise UserError(f"{out}: all pairs are longer than max_len = {limit.max_len} tokens; raise the limit")

    def build(rows: Order) -> pa.Table:
        return table.take(pa.array(rows))

    return write_in_order(out, schema, shuffled_order(table.num_rows, seed), build, rejected)


def _prompts(table: pa.Table, names: list[str], draw: Random | None) -> pa.Array:
    """The prompt of every row: what stands before and behind the source, by its languages and the wording drawn."""
    source, src_lang, trg_lang = (table[name].combine_chunks() for name in names[:3])
    pairs = pc.binary_join_element_wise(src_lang, trg_lang, pa.scalar(_SEPARATOR, src_lang.type)).dictionary_encode()
    languages = [pair.split(_SEPARATOR) for pair in pairs.dictionary.to_pylist()]
    wordings = [diverse_templates(*pair) if draw else (pair_template(*pair),) for pair in languages]
    n_wordings = len(wordings[0])
    chosen = pairs.indices.to_numpy() * n_wordings
    if draw is not None:
        chosen = chosen + np.array([draw.choice(range(n_wordings)) for _ in range(len(chosen))])
    around = [template.split(HOLE) for templates in wordings for template in templates]
    before, behind = (
        pa.array([pieces[side] for pieces in around], source.type).take(pa.array(chosen)) for side in (0, 1)
    )
    return pc.binary_join_element_wise(before, source, behind, pa.scalar("", source.type))


def _short_enough(table: pa.Table, limit: Limit, numbers: list[int]) -> tuple[pa.Table, list[RejectedRow]]:
    """The pairs within the limit, and the others by their `numbers` in the file."""
    keep = np.zeros(table.num_rows, dtype=np.bool_)
    with tqdm(total=table.num_rows, desc="count tokens", unit="pair", disable=None) as progress:
        for start in range(0, table.num_rows, ROWS_PER_BATCH):
            prompts, *answers = (column.to_pylist() for column in table.slice(start, ROWS_PER_BATCH).columns)
            longest = np.zeros(len(prompts), dtype=np.int64)
            for texts in answers:
                joined = [f"{prompt}{limit.separator}{text}" for prompt, text in zip(prompts, texts, strict=True)]
                longest = np.maximum(longest, limit.count_tokens(joined))
            keep[start : start + len(prompts)] = longest <= limit.max_len
            progress.update(len(prompts))
    reason = f"more than {limit.max_len} tokens"
    too_long = [RejectedRow(number, reason) for number, fits in zip(numbers, keep, strict=True) if not fits]
    return table.filter(pa.array(keep)), too_long
