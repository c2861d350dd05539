"""The demo's stages that are no commands of `grrm`: `python -m grrm.demo.prepare rows|exact|held-out|untrained …`."""

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
