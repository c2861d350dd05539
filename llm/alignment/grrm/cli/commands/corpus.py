"""`grrm data corpus`: parquet files of sentence pairs, generated or translated by people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grrm.cli.options import FILE, CommandGroup, option_group

if TYPE_CHECKING:
    from grrm.data.corpora.pairs import CorpusFiles

SEED = click.option("--seed", type=int, default=0, show_default=True)


@click.group(cls=CommandGroup)
def corpus() -> None:
    """Write train.parquet, heldout.parquet and dev.parquet in the TowerBlocks-MT schema."""


@corpus.command()
@click.argument("out_dir", type=FILE)
@click.option("--train-rows", type=int, default=40_000, show_default=True, help="Rows for training.")
@click.option("--heldout-rows", type=int, default=1000, show_default=True, help="Rows that do not occur in train.")
@click.option("--dev-rows", type=int, default=0, show_default=True, help="Held-out rows for tuning, in dev.parquet.")
@click.option("--languages", help="Codes separated by commas.  [default: all ten]")
@click.option("--pairs", type=click.Choice(["hub", "all"]), default="hub", show_default=True, help="hub: with English.")
@SEED
def phrases(out_dir: Path, languages: str | None, **settings: Any) -> None:
    """Dates, amounts, measures and places, generated with Unicode CLDR, in any number."""
    from grrm.data.corpora.phrases import build_phrases

    if languages:
        settings["languages"] = languages.replace(",", " ").split()
    _show(build_phrases(out_dir, **settings))


# The options that corpora of human translations have in common.
translation_options = option_group(
    click.argument("out_dir", type=FILE),
    click.option("--pairs", required=True, help="Pairs of languages, such as en-de,zh-en."),
    click.option("--train-rows", type=int, help="Maximum training rows.  [default: all others]"),
    click.option("--heldout-rows", type=int, help="Held-out rows for the final test.  [default: 10 % of the texts]"),
    click.option("--dev-rows", type=int, help="Held-out rows for tuning.  [default: 5 % of the texts]"),
)


@corpus.command()
@translation_options
@click.option("--min-words", type=click.IntRange(1), default=4, show_default=True, help="Of the English text.")
@click.option("--max-words", type=click.IntRange(1), default=25, show_default=True, help="Of the English text.")
@SEED
@click.option("--from", "wheel", type=FILE, help="Home Assistant's wheel, any version.  [default: download one]")
@click.option("--keep-placeholders", is_flag=True, help="Keep texts with {placeholders} that both sides have.")
def homeassistant(out_dir: Path, pairs: str, **settings: Any) -> None:
    """Texts of Home Assistant's interface, translated by people; no English text is in two files (Apache-2.0)."""
    from grrm.data.corpora.homeassistant import build_homeassistant
    from grrm.data.corpora.translations import parse_pairs

    _show(build_homeassistant(out_dir, parse_pairs(pairs), limits=_limits(settings), **settings))


@corpus.command()
@translation_options
@click.option("--min-words", type=click.IntRange(1), default=1, show_default=True, help="Of the English text.")
@click.option("--max-words", type=click.IntRange(1), default=100, show_default=True, help="Of the English text.")
@click.option("--from", "folder", type=FILE, help="Folder of Debian's packages, or of the help.  [default: download]")
def libreoffice(out_dir: Path, pairs: str, **settings: Any) -> None:
    """LibreOffice's help, translated by people, with page and position; no page is in two files (MPL-2.0)."""
    from grrm.data.corpora.libreoffice import build_libreoffice
    from grrm.data.corpora.translations import parse_pairs

    _show(build_libreoffice(out_dir, parse_pairs(pairs), limits=_limits(settings), **settings))


def _limits(settings: dict[str, Any]) -> Any:
    from grrm.data.corpora.translations import SIDES, Limits

    return Limits(**{side: settings.pop(f"{side}_rows") for side in SIDES})


def _show(files: CorpusFiles) -> None:
    for path, n_rows in ((files.train, files.n_train), (files.heldout, files.n_heldout), (files.dev, files.n_dev)):
        if n_rows:
            click.echo(f"{path}: {n_rows} rows")
