"""The commands of `grrm data` that make the rows of a rubric judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from grrm.cli.commands.data import FILES, GROUP_KEYS, SHUFFLE_SEED

CRITERIA = click.option(
    "--criteria",
    metavar="TEXT",
    help="Scoring criteria; {reference} is replaced by the reference of each row.  [default: faithfulness]",
)


@click.command()
@FILES
@GROUP_KEYS
@CRITERIA
@SHUFFLE_SEED
def sft_rubric(parquet: Path, out: Path, criteria: str | None, **settings: Any) -> None:
    """Turn each candidate of annotated groups into a conversation for the cold start of a rubric judge.

    OUT is a .parquet file, or a .jsonl file of `src` and `tgt` lines.
    """
    from grrm.data.converters.sqm import convert_sft_sqm, rubric_judge

    judge = rubric_judge(**_wording(criteria))
    click.echo(convert_sft_sqm(parquet, out, **settings, analyses_key=None, judge=judge).summary())


@click.command()
@FILES
@GROUP_KEYS
@CRITERIA
@SHUFFLE_SEED
def rl_rubric(parquet: Path, out: Path, criteria: str | None, **settings: Any) -> None:
    """Turn each candidate of annotated groups into a prompt and its true grade, for the rule reward grade.

    OUT is a .parquet file, or a .jsonl file of `src` and `tgt` lines.
    """
    from grrm.data.converters.sqm import convert_rl_sqm, rubric_judge

    judge = rubric_judge(**_wording(criteria))
    click.echo(convert_rl_sqm(parquet, out, **settings, judge=judge).summary())


@click.command()
@FILES
@GROUP_KEYS
@CRITERIA
def rubric_questions(parquet: Path, out: Path, criteria: str | None, **settings: Any) -> None:
    """Turn groups of translations into answers to questions with criteria: what `grrm rank --judge rubric` reads.

    In OUT, a .parquet file, the question is in src_text and the criteria in trg_text; languages, candidates and scores
    stay as they are.
    """
    from grrm.data.converters.sqm import convert_rubric_questions

    click.echo(convert_rubric_questions(parquet, out, **_wording(criteria), **settings).summary())


def _wording(criteria: str | None) -> dict[str, str]:
    """The criteria, if they were given."""
    return {} if criteria is None else {"criteria": criteria}
