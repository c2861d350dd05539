"""`grrm data`: corpora, tokenizers and training files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from grrm.cli.commands.convert import convert
from grrm.cli.commands.corpus import corpus
from grrm.cli.options import FILE, option_group
from grrm.cli.script_flags import ScriptGroup
from grrm.gqm.prompts import GQM_TASKS

SHUFFLE_SEED = click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=114514, show_default=True, help="Random seed."
)
LLAMA_FACTORY = click.option("--llama-factory", is_flag=True, help="Add the file to dataset_info.json in its folder.")
FILES = option_group(click.argument("parquet", type=FILE), click.argument("out", type=FILE))
GROUP_KEYS = option_group(
    click.option("--mt-key", default="mt_texts", show_default=True, help="Column of the lists of candidates."),
    click.option("--score-key", default="scores", show_default=True, help="Column of the lists of scores."),
)
CONTEXT = click.option(
    "--context-segments",
    type=click.IntRange(0, 16),
    default=0,
    show_default=True,
    help="Preceding segments that prompts show, by the columns document and position.",
)
# The options of the converters of annotated groups.
GROUP_OPTIONS = option_group(
    CONTEXT,
    GROUP_KEYS,
    click.option("--analysis-key", default="analysis", show_default=True, help="Column of the analyses."),
    click.option(
        "--prompt-type",
        type=click.Choice(list(GQM_TASKS)),
        default="ranking_score",
        show_default=True,
    ),
    click.option("--add-example", is_flag=True, help="Show the judge an example of a verdict."),
)
COMPAT = click.option("--compat", is_flag=True, help="Reproduce the original's rows with its mistakes.")


@click.group(cls=ScriptGroup)
def data() -> None:
    """Build corpora, tokenizers and training files."""


data.add_command(corpus)
data.add_command(convert)


@data.command()
@click.argument("parquet", type=FILE)
@click.argument("out_dir", type=FILE)
@click.option("--vocab-size", type=int, default=2048, show_default=True)
@click.option(
    "--prompt-type",
    default="Tower",
    show_default=True,
    help="Prompt to cover by the tokenizer; parts shared by all such prompts become one token.",
)
@click.option("--rubric", metavar="CRITERIA", help="Also cover the prompts of a rubric judge with these criteria.")
def tokenizer(parquet: Path, out_dir: Path, vocab_size: int, prompt_type: str, rubric: str | None) -> None:
    """Train a byte-level BPE on the texts of PARQUET."""
    from itertools import chain

    from grrm.data.bpe import corpus_texts, prompt_frames, rubric_frames, rubric_texts, train_bpe

    texts, frames = corpus_texts(parquet, prompt_type), prompt_frames(prompt_type)
    if rubric is not None:
        texts, frames = chain(texts, rubric_texts(parquet, rubric)), frames + rubric_frames()
    click.echo(train_bpe(texts, out_dir, vocab_size, frames))


@data.command()
@click.argument("rows", type=FILE)
@click.argument("out", type=FILE)
@click.option("--data-source", metavar="NAME", help="Of rows that do not name their data.")
def answers(rows: Path, out: Path, data_source: str | None) -> None:
    """Turn questions with true answers into the lines that run_rl.py reads beside translations.

    ROWS has the columns data_source, prompt and reward_model, as verl reads them, or quiz and solution_text_format of
    knights and knaves, or PaddleNLP's src and tgt; OUT is a .jsonl file. Join files of several kinds with cat.
    """
    from grrm.data.answers import convert_answers

    click.echo(convert_answers(rows, out, data_source).summary())


@data.command()
@FILES
@click.option("--group-size", type=int, default=4, show_default=True, help="Translations per group.")
@click.option("--groups-per-row", type=int, default=1, show_default=True, help="Groups per row.")
@click.option("--mixed-share", type=float, default=0.0, show_default=True, help="Share of groups with references.")
@click.option("--smaller-share", type=float, default=0.0, show_default=True, help="Share of smaller groups.")
@click.option("--scale", type=FILE, help="Scale of the gold scores, made with --fit-scale.  [default: chrF / 10]")
@click.option("--fit-scale", type=FILE, help="Spread the scores evenly over these groups; write the scale here.")
@click.option("--top-score", type=click.IntRange(1, 10), default=10, show_default=True, help="Maximum of --fit-scale.")
@click.option("--seed", type=int, default=0, show_default=True)
def groups(parquet: Path, out: Path, **settings: Any) -> None:
    """Form groups of sampled translations, with gold scores by chrF and analyses, for training a judge.

    PARQUET is what `grrm translate --sampling-n 8` makes of rows with references; OUT, a .parquet file, is input of
    `grrm data sft-gqm` and `rl-gqm`, `sft-sqm` and `rl-sqm`, and of `grrm rank`.
    """
    from grrm.data.annotation.groups import annotate_groups

    click.echo(annotate_groups(parquet, out, **settings).summary())


@data.command()
@FILES
@GROUP_OPTIONS
@click.option("--no-analysis", is_flag=True, help="Teach the verdict alone.")
@LLAMA_FACTORY
@SHUFFLE_SEED
def sft_gqm(parquet: Path, out: Path, llama_factory: bool, **settings: Any) -> None:
    """Turn annotated groups into conversations for the cold start of a group judge.

    OUT is a .parquet file, or a .jsonl file of `src` and `tgt` lines.
    """
    from grrm.data.converters.gqm import convert_sft_gqm
    from grrm.data.converters.output import enter_dataset

    click.echo(convert_sft_gqm(parquet, out, **settings).summary())
    if llama_factory:
        click.echo(enter_dataset(out))


@data.command()
@FILES
@GROUP_OPTIONS
@click.option("--subgroup-augment", type=click.IntRange(min=0), default=0, show_default=True, help="Sub-groups added.")
@click.option(
    "--shuffle-augment",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Shuffled orders added.",
)
@click.option(
    "--order-only", is_flag=True, help="With prompt type score: the ground truth is the order, by all decimals."
)
@COMPAT
@SHUFFLE_SEED
def rl_gqm(parquet: Path, out: Path, **settings: Any) -> None:
    """Turn annotated groups into prompts and true rankings for reinforcement learning of a group judge.

    OUT is a .parquet file, or a .jsonl file of `src` and `tgt` lines.
    """
    from grrm.data.converters.gqm import convert_rl_gqm

    click.echo(convert_rl_gqm(parquet, out, **settings).summary())


@data.command()
@FILES
@GROUP_KEYS
@click.option("--analyses-key", default="analyses", show_default=True, help="Column of the lists of analyses.")
@click.option("--no-analysis", is_flag=True, help="Teach the score alone.")
@CONTEXT
@SHUFFLE_SEED
def sft_sqm(parquet: Path, out: Path, analyses_key: str, no_analysis: bool, **settings: Any) -> None:
    """Turn each candidate of annotated groups into a conversation for the cold start of a single judge.

    OUT is a .parquet file, or a .jsonl file of `src` and `tgt` lines.
    """
    from grrm.data.converters.sqm import convert_sft_sqm

    taught = None if no_analysis else analyses_key
    click.echo(convert_sft_sqm(parquet, out, analyses_key=taught, **settings).summary())


@data.command()
@FILES
@GROUP_KEYS
@CONTEXT
@SHUFFLE_SEED
def rl_sqm(parquet: Path, out: Path, **settings: Any) -> None:
    """Turn each candidate of annotated groups into a prompt and its true score, for the rule reward single_score.

    OUT is a .parquet file, or a .jsonl file of `src` and `tgt` lines.
    """
    from grrm.data.converters.sqm import convert_rl_sqm

    click.echo(convert_rl_sqm(parquet, out, **settings).summary())


@data.command()
@FILES
@click.option("--top-score", type=click.IntRange(1, 10), default=9, show_default=True)
@click.option(
    "--group-size",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Split into smaller groups; 0 = no split.",
)
@click.option("--keep-scores", is_flag=True, help="Keep the scores as they are.")
@click.option(
    "--orders", type=click.IntRange(0), default=0, show_default=True, help="Random orders of each group; 0 = its own."
)
@click.option(
    "--analysis",
    type=click.Choice(["none", "alignment"]),
    default="none",
    show_default=True,
    help="alignment: a line per candidate on how it differs from the reference.",
)
@click.option("--seed", type=int, default=0, show_default=True)
def relative(parquet: Path, out: Path, **settings: Any) -> None:
    """Copy annotated groups with each score replaced by its place in the group, from 0 to TOP_SCORE."""
    from grrm.data.annotation.relative import relative_groups

    click.echo(relative_groups(parquet, out, **settings).summary())


@data.command()
@FILES
@click.option("--response-key", default="response", show_default=True, help="Column of the target responses.")
@LLAMA_FACTORY
@SHUFFLE_SEED
def sft_mt(parquet: Path, out: Path, llama_factory: bool, **settings: Any) -> None:
    """Turn step-by-step translations into conversations for the cold start of a policy.

    OUT is a .parquet file, or a .jsonl file of `src` and `tgt` lines.
    """
    from grrm.data.converters.mt import convert_sft_mt
    from grrm.data.converters.output import enter_dataset

    click.echo(convert_sft_mt(parquet, out, **settings).summary())
    if llama_factory:
        click.echo(enter_dataset(out))


@data.command()
@FILES
@click.option("--cross-lingual", is_flag=True, help="Add each row again with a random target language out of ten.")
@click.option("--testset", is_flag=True, help="Add the column reward_model and leave the rows in order.")
@COMPAT
@SHUFFLE_SEED
def rl_mt(parquet: Path, out: Path, **settings: Any) -> None:
    """Turn sentence pairs into prompts for reinforcement learning of a policy.

    OUT is a .parquet file, or a .jsonl file of `src` and `tgt` lines.
    """
    from grrm.data.converters.mt import convert_rl_mt

    click.echo(convert_rl_mt(parquet, out, **settings).summary())
