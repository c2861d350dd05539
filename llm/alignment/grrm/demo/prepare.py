"""The demo's small stages as commands: `python -m grrm.demo.prepare corpus|rows|tokenizer|… …`."""

from __future__ import annotations

from pathlib import Path

import click

from grrm.entry import run_main
from grrm.startup import configure_process

FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)


@click.group()
def main() -> None:
    """Make what the training stages need."""


@main.command()
@click.option("--out", type=FOLDER, required=True)
@click.option("--train-rows", type=int, required=True)
@click.option("--heldout-rows", type=int, required=True)
@click.option("--dev-rows", type=int, required=True)
@click.option("--languages", required=True, help="Two-letter codes, separated by commas.")
@click.option("--seed", type=int, required=True)
def corpus(out: Path, train_rows: int, heldout_rows: int, dev_rows: int, languages: str, seed: int) -> None:
    """Word dates, amounts, measures and places in pairs of languages: train, heldout and dev.parquet."""
    from grrm.data.corpora.phrases import build_phrases

    files = build_phrases(out, train_rows, heldout_rows, tuple(languages.split(",")), seed, dev_rows=dev_rows)
    click.echo(f"{files.n_train} rows to train on, {files.n_dev} to choose on, {files.n_heldout} to report on")


@main.command()
@click.option(
    "--part", "parts", type=(FILE, int), multiple=True, required=True, help="A file, and how many of its rows."
)
@click.option("--out", type=FOLDER, required=True)
def rows(parts: tuple[tuple[Path, int], ...], out: Path) -> None:
    """Write the first rows of files, which are in random order as they are, into files of the same name in OUT."""
    from grrm.data.parquet import read_rows, write_rows

    for path, count in parts:
        write_rows(out / path.name, read_rows(path)[:count])
    click.echo(", ".join(f"{count} rows of {path.stem}" for path, count in parts))


@main.command()
@click.option("--groups", "path", type=FILE, required=True, help="Groups of `grrm data groups`.")
@click.option("--out", type=FILE, required=True)
def exact(path: Path, out: Path) -> None:
    """Copy groups with a tenth of their chrF against the reference as scores, not rounded."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from grrm.data.parquet import write_rows
    from grrm.evaluation.text_metrics import sentence_chrfs

    names = ("src_text", "src_lang", "trg_lang", "mt_texts")
    table = pq.read_table(path)
    rows = [
        (*(row[name] for name in names), [chrf / 10 for chrf in sentence_chrfs(texts, [row["trg_text"]] * len(texts))])
        for row in table.to_pylist()
        for texts in [row["mt_texts"]]
    ]
    kinds = [(name, table.schema.field(name).type) for name in names]
    write_rows(out, rows, pa.schema([*kinds, ("scores", pa.list_(pa.float64()))]))
    click.echo(f"{len(rows)} groups")


@main.command()
@click.option("--data", type=FILE, required=True)
@click.option("--out", type=FOLDER, required=True)
@click.option("--vocab-size", type=int, required=True)
@click.option("--prompt-type", required=True)
def tokenizer(data: Path, out: Path, vocab_size: int, prompt_type: str) -> None:
    """Train a byte-level BPE on the training rows."""
    from grrm.data.bpe import corpus_texts, prompt_frames, train_bpe

    train_bpe(corpus_texts(data, prompt_type), out, vocab_size, prompt_frames(prompt_type))


@main.command()
@click.option("--data", type=FILE, required=True)
@click.option("--out", type=FOLDER, required=True)
@click.option("--prompt-type", required=True)
def convert(data: Path, out: Path, prompt_type: str) -> None:
    """Turn the training rows into sft.jsonl and rl.jsonl."""
    from grrm.data.convert import convert_to_sft, convert_to_src_tgt

    for make, name in ((convert_to_sft, "sft.jsonl"), (convert_to_src_tgt, "rl.jsonl")):
        click.echo(make(data, out / name, prompt_type).summary())


@main.command("held-out")
@click.option("--data", type=FILE, required=True)
@click.option("--rows", "n_rows", type=int, required=True)
@click.option("--out", type=FOLDER, required=True)
@click.option("--prompt-type", required=True)
def held_out(data: Path, n_rows: int, out: Path, prompt_type: str) -> None:
    """Turn the first rows of a file into the rl.jsonl that RL is evaluated with on its way."""
    from grrm.data.convert import convert_to_src_tgt
    from grrm.data.parquet import read_rows, write_rows

    write_rows(out / data.name, read_rows(data)[:n_rows])
    click.echo(convert_to_src_tgt(out / data.name, out / "rl.jsonl", prompt_type).summary())


@main.command()
@click.option("--config", type=FILE, required=True)
@click.option("--tokenizer", "tokenizer_folder", type=FOLDER, required=True)
@click.option("--out", type=FOLDER, required=True)
@click.option("--seed", type=int, required=True)
def untrained(config: Path, tokenizer_folder: Path, out: Path, seed: int) -> None:
    """Save the policy that SFT with the same seed starts from."""
    from grrm.models.tokenizer import load_tokenizer
    from grrm.sft.run import fresh_model

    loaded = load_tokenizer(str(tokenizer_folder))
    model = fresh_model(str(config), seed, len(loaded))
    model.save_pretrained(str(out), safe_serialization=True)
    loaded.save_pretrained(str(out))


if __name__ == "__main__":
    configure_process()
    run_main(main)
