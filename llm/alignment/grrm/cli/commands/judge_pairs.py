"""The commands of `grrm data` that make pairs for training a judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from grrm.cli.commands.data import MT_KEY, SCORE_KEY, SHUFFLE_SEED, group_options
from grrm.cli.options import FILE


@click.command()
@click.argument("parquet", type=FILE)
@click.argument("out", type=FILE)
@group_options(("score", "ranking", "ranking_score"))
@click.option("--swaps", type=click.IntRange(1), default=1, show_default=True, help="Pairs of each group.")
@click.option(
    "--choose",
    type=click.Choice(["gap", "random"]),
    default="random",
    show_default=True,
    help="Which candidates to swap: at random, or those whose scores are furthest apart first.",
)
@SHUFFLE_SEED
def pairs_gqm(parquet: Path, out: Path, **settings: Any) -> None:
    """Turn annotated groups into pairs of the right verdict and the same with two candidates swapped.

    OUT, a .parquet file, is input of run_dpo.py: the form of both is the same, so that only the judgement is learned.
    """
    from grrm.data.converters.gqm_pairs import convert_pairs_gqm

    click.echo(convert_pairs_gqm(parquet, out, **settings).summary())


@click.command()
@click.argument("parquet", type=FILE)
@click.argument("out", type=FILE)
@MT_KEY
@SCORE_KEY
@click.option("--pairs", type=click.IntRange(1), default=3, show_default=True, help="Pairs of each group.")
@SHUFFLE_SEED
def sft_pairwise(parquet: Path, out: Path, **settings: Any) -> None:
    """Turn annotated groups into pairs of candidates with the letter of the better one, for a pairwise judge.

    OUT is a .parquet file, or a .jsonl file of `src` and `tgt` lines.
    """
    from grrm.data.converters.gqm_pairs import convert_sft_pairwise

    click.echo(convert_sft_pairwise(parquet, out, **settings).summary())
