"""`grrm data convert`: a user's sentence pairs as training files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from grrm.cli.options import FILE, language_options
from grrm.errors import UserError


def _columns(context: click.Context, option: click.Parameter, value: str | None) -> dict[str, str]:
    """`src_text=en,trg_text=de` as a mapping."""
    ours = ("src_text", "trg_text", "src_lang", "trg_lang", "document", "position", "terms")
    pairs = [part.strip().partition("=") for part in value.split(",")] if value else []
    for name, _, theirs in pairs:
        if name not in ours or not theirs or [other for other, *_ in pairs].count(name) > 1:
            message = f"{name!r} is not one of {', '.join(ours)}, each once, with =COLUMN behind it"
            raise click.BadParameter(message, context, option)
    return {name: theirs for name, _, theirs in pairs}


def _list(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(value.split(",")) if value else ()


@click.command()
@click.argument("rows", type=FILE)
@click.argument("out", type=FILE)
@click.option(
    "--to", "kind", type=click.Choice(["rl", "sft", "rows"]), help="Task or translation in `tgt`.  [default: both]"
)
@click.option("--prompt-type", default="codeblock-think", show_default=True)
@click.option("--target", type=FILE, help="Text file with the translations of the lines of ROWS.")
@click.option("--columns", metavar="OURS=YOURS,…", callback=_columns, help="Such as src_text=en,trg_text=de.")
@language_options
@click.option("--languages", metavar="LANG,…", callback=_list, help="Of parallel files; zh=zho_Hans names a file's.")
@click.option("--held-out", type=click.IntRange(1), metavar="N", help="Write N rows with other sources to a file.")
@click.option("--messages", is_flag=True, help="Write messages in place of ChatML prompts, for the model's template.")
def convert(
    out: Path, kind: str | None, prompt_type: str, held_out: int | None, messages: bool, rows: Path, **settings: Any
) -> None:
    """Turn sentence pairs into the chat-templated `src`/`tgt` lines that run_rl.py and run_sft.py read.

    ROWS has the columns src_text, trg_text, src_lang and trg_lang, or others that the options name: a parquet, JSON,
    JSON lines, CSV, TSV, Arrow, TMX or XLIFF file, a folder of these, lines of text with --target, or a data set of
    Hugging Face's hub: OWNER/NAME, with :CONFIGURATION and @SPLIT behind it if need be. A column terms has glossary
    terms for a gate.

    OUT is a .jsonl file with --to, and a folder for sft.jsonl and rl.jsonl without it; --to rows writes the four
    columns to a .parquet file, which all other commands read. Rows of --held-out go to heldout.parquet, beside OUT or
    in it, and where OUT is for RL to heldout.jsonl too, for eval_datasets.
    """
    from grrm.data.convert import convert_to_rows, convert_to_sft, convert_to_src_tgt
    from grrm.data.held_out import hold_out
    from grrm.data.layouts.user_rows import UserRows

    if messages and (kind == "rows" or prompt_type == "SSR"):
        raise UserError("--messages is for lines with a chat's prompt, not for --to rows or the prompt type SSR.")
    if kind is None and out.suffix in (".jsonl", ".json", ".parquet"):
        raise UserError(
            f"{out} is the name of a file, and without --to there are two: give --to rl or --to sft, or a folder."
        )
    lines = {"as_messages": True} if messages else {}
    converters: dict[str, Any] = {"sft": convert_to_sft, "rl": convert_to_src_tgt, "rows": convert_to_rows}
    files = {kind: out} if kind else {name: out / f"{name}.jsonl" for name in ("sft", "rl")}
    source, without = UserRows(rows, **settings), frozenset[int]()
    inputs = {file.resolve() for file in (rows, settings["target"]) if file is not None}
    held_file = (out.parent if kind else out) / "heldout.parquet"
    held_files = [] if held_out is None else [held_file, held_file.with_suffix(".jsonl")]
    for path in (*files.values(), *held_files):
        if inputs & {path.resolve(), path.parent.resolve()}:
            raise UserError(f"{path} would be in the input {rows}; write to another folder")
    if out in held_files:
        raise UserError(f"{out} is for the rows of --held-out; give OUT another name")
    if held_out is not None:
        held = hold_out(source, held_file, held_out, prompt_type)
        without = held.without
        click.echo(held.summary())
        if kind in (None, "rl"):  # RL would hold out rows of its own, which SFT has been trained on
            tasks = convert_to_src_tgt(held.path, held.path.with_suffix(".jsonl"), prompt_type, as_messages=messages)
            click.echo(tasks.summary())
    for name, path in files.items():
        click.echo(converters[name](source, path, prompt_type, without, **lines).summary())
