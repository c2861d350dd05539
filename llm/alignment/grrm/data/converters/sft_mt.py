"""Cold start of the translation policy: prompts with the step-by-step responses it should give."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from grrm.data.convert import ConversionReport
from grrm.data.converters.intake import read_usable
from grrm.data.converters.prompt_columns import mt_prompt_column
from grrm.data.converters.shuffled import DEFAULT_SEED, MESSAGES, Order, conversation, shuffled_order, write_in_order

SCHEMA = pa.schema([("messages", MESSAGES)])


def convert_sft_mt(
    parquet: Path, out: Path, *, response_key: str = "response", seed: int = DEFAULT_SEED
) -> ConversionReport:
    """Write `messages`: the codeblock-think prompt as user, the stripped response as assistant.

    Needs columns src_text, src_lang, trg_lang and `response_key`. Raises UserError as `read_usable` does.
    """
    intake = read_usable(
        parquet, {"src_text": "text", "src_lang": "language", "trg_lang": "language", response_key: "text"}
    )

    def build(rows_B: Order) -> pa.Table:
        batch = intake.table.take(rows_B)
        prompts = mt_prompt_column(*(batch[name].combine_chunks() for name in ("src_text", "src_lang", "trg_lang")))
        stripped = pa.array([response.strip() for response in batch[response_key].to_pylist()], pa.string())
        return pa.table([conversation(prompts, stripped)], schema=SCHEMA)

    written = write_in_order(out, SCHEMA, shuffled_order(intake.table.num_rows, seed), build)
    return ConversionReport(out, written, intake.rejected)
