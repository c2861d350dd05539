"""The converters, from parquet file to parquet file."""

import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from grrm.data.converters.gqm import convert_rl_gqm, convert_sft_gqm
from grrm.data.converters.mt import convert_rl_mt, convert_sft_mt
from grrm.data.converters.output import shuffled_order
from grrm.errors import UserError


def adapter(convert, **settings):
    """Rows and columns of the file that `convert` makes of the row's input file."""

    def call(row, context):
        arguments = dict(row["args"])
        named = arguments.pop("data_path", None) or f"parquet/{context.row['parquet_in']}"
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out.parquet"
            convert(context.golden_dir / named, out, **arguments, **settings)
            table = pq.read_table(out)
        return {"rows": table.to_pylist(), "columns": table.column_names}

    return call


def raising(call, error_types):
    """Our one error under the names the original has for it, told apart by what our sentence says."""

    def translated(row, context):
        try:
            return call(row, context)
        except UserError as error:
            kind = next(kind for words, kind in error_types.items() if words in str(error))
            raise kind(str(error)) from error

    return translated


def convert_rl_rows(parquet, out, prompt_type="ranking_score", **settings):
    """Rows of RL without mistakes; `score` is a prompt type of ours alone, which the original refuses."""
    convert_rl_gqm(parquet, out, prompt_type=prompt_type, compat=prompt_type == "score", **settings)


SFT_ERRORS = {"": ValueError}
RL_ERRORS = {"cannot be used here": AssertionError, "candidates but": AssertionError, "": ValueError}

FIXED = {
    "prepare_SFT_GQM": raising(adapter(convert_sft_gqm), SFT_ERRORS),
    "prepare_RL_GQM": raising(adapter(convert_rl_rows), RL_ERRORS),
    "prepare_SFT_MT": adapter(convert_sft_mt),
    "prepare_RL_MT.construct_tower": adapter(convert_rl_mt),
    "prepare_RL_MT.construct_towerx": raising(adapter(convert_rl_mt, cross_lingual=True), SFT_ERRORS),
    "pandas.sample_perm": lambda row: shuffled_order(row["n"], row["random_state"]),
}

COMPAT = {
    "prepare_RL_GQM": raising(adapter(convert_rl_gqm, compat=True), RL_ERRORS),
    "prepare_RL_MT.construct_towerx": raising(adapter(convert_rl_mt, cross_lingual=True, compat=True), SFT_ERRORS),
}
