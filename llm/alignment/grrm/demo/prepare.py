"""The demo's small stages as commands: `python -m grrm.demo.prepare corpus|terms|tokenizer|… …`."""

from __future__ import annotations

import re
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
@click.option("--languages", required=True, help="Two-letter codes, separated by commas.")
@click.option("--seed", type=int, required=True)
def corpus(out: Path, train_rows: int, heldout_rows: int, languages: str, seed: int) -> None:
    """Word dates, amounts, measures and places in pairs of languages: train.parquet and heldout.parquet."""
    from grrm.data.corpora.phrases import build_phrases

    files = build_phrases(out, train_rows, heldout_rows, tuple(languages.split(",")), seed)
    click.echo(f"{files.n_train} training rows, {files.n_heldout} held-out rows")


@main.command()
@click.option("--train", type=FILE, required=True, help="Rows that the policies are trained on.")
@click.option("--out", type=FOLDER, required=True)
@click.option("--rows", type=int, required=True)
@click.option("--max-letters", type=int, default=60, show_default=True, help="Longer texts are left out.")
@click.option("--languages", required=True, help="Two-letter codes, separated by commas.")
@click.option("--seed", type=int, required=True)
def terms(train: Path, out: Path, rows: int, max_letters: int, languages: str, seed: int) -> None:
    """Pick held-out names and interface texts, each with an English word that no row of TRAIN has: heldout.parquet."""
    from grrm.data.corpora.terms import build_terms
    from grrm.data.parquet import read_rows, write_rows

    known = {word for row in read_rows(train) for text in row[:2] for word in words_of(text)}
    files = build_terms(out, heldout_rows=None, languages=tuple(languages.split(",")), seed=seed)
    new = [
        row
        for row in read_rows(files.heldout)
        if max(len(row.src_text), len(row.trg_text)) <= max_letters
        and words_of(row.src_text if row.src_lang == "en" else row.trg_text) - known
    ]
    write_rows(files.heldout, new[:rows])
    click.echo(f"{len(new[:rows])} held-out rows of terms")


def words_of(text: str) -> set[str]:
    """The words of a text, letter case aside."""
    return set(re.findall(r"\w+", text.casefold()))


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
