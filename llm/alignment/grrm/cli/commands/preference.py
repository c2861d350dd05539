"""The commands of `grrm data` that make pairs: preference pairs, as the EAX recipe does, and those of judges."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grrm.cli.commands.data import FILES, GROUP_KEYS, GROUP_OPTIONS, SHUFFLE_SEED
from grrm.cli.folders import parts_options
from grrm.cli.options import COUNT, FILE, Command, FiniteRange, option_group
from grrm.cli.script_flags import ScriptCommand

if TYPE_CHECKING:
    from grrm.data.preference.instructions import CountTokens

_COPIED = {
    "src-text": "src_text",
    "trg-text": None,
    "ref-text": None,
    "src-lang": "src_lang",
    "trg-lang": "trg_lang",
    "ref-lang": None,
}


def _range(_: click.Context, parameter: click.Parameter, value: str | None) -> tuple[float, float] | None:
    """Two numbers, `20,95` or as the original takes them `[20,95]`. Raises BadParameter for anything else."""
    if value is None:
        return None
    try:
        low, high = map(float, value.strip().removeprefix("[").removesuffix("]").split(","))
        return low, high
    except ValueError:
        raise click.BadParameter(f"{value!r} is not two numbers like 20,95.", param=parameter) from None


_columns = option_group(
    *(
        click.option(
            f"--{flag}-key", default=default, show_default=True, help=f"Column kept as {flag.replace('-', '_')}."
        )
        for flag, default in _COPIED.items()
    )
)


def _token_limit(help_text: str) -> Callable[[Command], Command]:
    """--tokenizer, and the limit in its tokens."""
    return option_group(
        click.option("--tokenizer", type=FILE, help="Folder of a tokenizer: skip pairs with too many tokens."),
        click.option("--max-len", type=COUNT, default=1024, show_default=True, help=help_text),
    )


@click.command(cls=ScriptCommand)
@click.argument("parquet", type=FILE)
@click.argument("out_dir", type=FILE)
def rm_seed(parquet: Path, out_dir: Path) -> None:
    """Deal sentence pairs into files by language pair: into English and out of it, each source once.

    A file that is there is kept as it is.
    """
    from grrm.data.preference.seeds import write_rm_seed

    click.echo(write_rm_seed(parquet, out_dir).summary())


@click.command(cls=ScriptCommand)
@click.argument("parquet", type=FILE)
@click.argument("out_dir", type=FILE)
def x2x_seed(parquet: Path, out_dir: Path) -> None:
    """Make sources to translate between the languages beside English, each with its English version in ref_text.

    A file that is there is kept as it is.
    """
    from grrm.data.preference.seeds import write_x2x_seed

    click.echo(write_x2x_seed(parquet, out_dir).summary())


@click.command(cls=ScriptCommand)
@click.argument("folder", type=FILE)
@click.option("--text-key", default="mt_texts", show_default=True, help="Column of the lists of candidates.")
@click.option("--single-line", is_flag=True, help="Strip candidates and replace inner newlines by `; `.")
@parts_options
def clean_samples(folder: Path, **settings: Any) -> None:
    """Clean the sampled candidates of FOLDER's files in place: cut at `</s>`, copies left out, first seen first."""
    from grrm.data.preference.samples import clean_sample_files

    for report in clean_sample_files(folder, **settings):
        click.echo(report.summary())


@click.command(cls=ScriptCommand)
@click.argument("folder", type=FILE)
@click.argument("out", type=FILE)
@GROUP_KEYS
@_columns
@click.option(
    "--min-margin", type=FiniteRange(0), default=1.0, show_default=True, help="Minimum score difference of a pair."
)
@click.option(
    "--valid-score-range", callback=_range, metavar="LOW,HIGH", help="Skip candidates with scores outside this range."
)
@click.option("--min-winner-score", type=FiniteRange(), help="Minimum score of the chosen candidate.")
@click.option("--limit-for-each-lang-pair", type=COUNT, help="Maximum pairs per file, largest margins first.")
@click.option("--use-sampling-num", type=click.IntRange(2), help="Candidates to use per source.")
@click.option("--to-percentile", is_flag=True, help="Multiply scores by 100 first.")
@SHUFFLE_SEED
def pairs(folder: Path, out: Path, mt_key: str, score_key: str, seed: int, **settings: Any) -> None:
    """Pair the best candidate of each source in FOLDER's files with the worst, where they differ enough.

    OUT is a .parquet file. The numbers of pairs by language are printed.
    """
    from grrm.data.preference.pairs import PairRules, write_pairs

    columns = {}
    for name in (flag.replace("-", "_") for flag in _COPIED):
        if (column := settings.pop(f"{name}_key")) is not None:
            columns[name] = column
    rules = PairRules(**settings)
    click.echo(
        write_pairs(
            folder, out, mt_texts_key=mt_key, score_key=score_key, rules=rules, columns=columns, seed=seed
        ).summary()
    )


@click.command(cls=ScriptCommand)
@FILES
@_token_limit("Maximum tokens of prompt and either text.")
@click.option("--src-text-key", default="src_text", show_default=True)
@click.option("--src-lang-key", default="src_lang", show_default=True)
@click.option("--trg-lang-key", default="trg_lang", show_default=True)
@click.option("--chosen-text-key", default="winner_text", show_default=True)
@click.option("--rejected-text-key", default="loser_text", show_default=True)
@click.option("--diverse-prompt", is_flag=True, help="Sample one of twenty prompt wordings per pair.")
@SHUFFLE_SEED
def pair_instructions(parquet: Path, out: Path, tokenizer: Path | None, **settings: Any) -> None:
    """Turn preference pairs into prompt, chosen and rejected, to train a reward model or to optimise preferences on."""
    from grrm.data.preference.instructions import PairColumns, write_instructions

    columns = PairColumns(**{name: settings.pop(name) for name in PairColumns.__dataclass_fields__})
    counter = _counter(tokenizer)
    click.echo(write_instructions(parquet, out, columns=columns, count_tokens=counter, **settings).summary())


@click.command(cls=ScriptCommand)
@click.argument("rows", type=FILE)
@click.argument("out", type=FILE)
@_token_limit("Maximum tokens of prompt and translation.")
@click.option("--src-key", default="src", show_default=True, help="Prefix of the source's columns.")
@click.option("--trg-key", default="trg", show_default=True, help="Prefix of the translation's columns.")
@SHUFFLE_SEED
def sft_instructions(rows: Path, out: Path, tokenizer: Path | None, **settings: Any) -> None:
    """Turn sentence pairs into prompt and response, with one of twenty prompt wordings each.

    OUT is a .parquet file, or a .jsonl file of `src` and `tgt` lines.
    """
    from grrm.data.preference.instructions import write_sft_instructions

    click.echo(write_sft_instructions(rows, out, count_tokens=_counter(tokenizer), **settings).summary())


def _counter(folder: Path | None) -> CountTokens | None:
    """Count tokens with the tokenizer in `folder`; without one nothing is counted, and --max-len is refused."""
    from grrm.cli.options import refuse_ineffective

    if folder is None:
        refuse_ineffective(("max_len",), "without --tokenizer")
        return None
    from grrm.engine.open import prepare_paddle
    from grrm.models.tokenizer import load_tokenizer

    prepare_paddle(quiet=True)
    tokenizer = load_tokenizer(folder)
    return lambda texts: [len(ids) for ids in tokenizer(texts, add_special_tokens=True)["input_ids"]]


@click.command()
@FILES
@GROUP_OPTIONS
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

    OUT, a .parquet file, is input of run_dpo.py: both have the same format, so only the judgement is learned.
    """
    from grrm.data.converters.gqm_pairs import convert_pairs_gqm

    click.echo(convert_pairs_gqm(parquet, out, **settings).summary())


@click.command()
@FILES
@GROUP_KEYS
@click.option("--pairs", type=click.IntRange(1), default=3, show_default=True, help="Pairs of each group.")
@SHUFFLE_SEED
def sft_pairwise(parquet: Path, out: Path, **settings: Any) -> None:
    """Turn annotated groups into pairs of candidates with the letter of the better one, for a pairwise judge.

    OUT is a .parquet file, or a .jsonl file of `src` and `tgt` lines.
    """
    from grrm.data.converters.gqm_pairs import convert_sft_pairwise

    click.echo(convert_sft_pairwise(parquet, out, **settings).summary())


PREFERENCE_COMMANDS = (
    rm_seed,
    x2x_seed,
    clean_samples,
    pairs,
    pair_instructions,
    sft_instructions,
    pairs_gqm,
    sft_pairwise,
)
