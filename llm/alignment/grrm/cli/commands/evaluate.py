"""`grrm eval`: how good rankings and translations are; `grrm scorer`: environments of the learned metrics."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grrm.cli.commands.evaluate_judge import judge
from grrm.cli.commands.evaluate_ranking import ranking
from grrm.cli.options import FILE, Command, CommandGroup, FiniteRange, option_group, refuse_ineffective
from grrm.cli.reports import mean_and_interval, report_options
from grrm.errors import UserError
from grrm.judges.metric_worker import METRIC_KINDS, MetricWorker, environment_of, install_command

if TYPE_CHECKING:
    from grrm.evaluation.mt_scores import TranslationScores


@click.group("eval", cls=CommandGroup)
def evaluate() -> None:
    """Score rankings against gold scores, and translations against references."""


evaluate.add_command(judge)
evaluate.add_command(ranking)


def scorer_options(name: str, title: str, model_help: str) -> Callable[[Command], Command]:
    """--NAME, --NAME-env and --NAME-model."""
    return option_group(
        click.option(f"--{name}", is_flag=True, help=f"Also score with {title}, in a separate environment."),
        click.option(
            f"--{name}-env", type=FILE, default=Path(f".venv-{name}"), show_default=True, help=f"Folder of {title}."
        ),
        click.option(f"--{name}-model", help=model_help),
    )


@evaluate.command()
@click.argument("rows", type=FILE)
@click.option("--hypothesis-key", default="translation", show_default=True, help="Column of the translations.")
@click.option("--reference-key", default="trg_text", show_default=True, help="Column of the references.")
@scorer_options("comet", "COMET", "Checkpoint file or name.  [default: Unbabel/wmt22-comet-da]")
@scorer_options("cometkiwi", "CometKiwi", "Checkpoint file or name.  [default: Unbabel/wmt22-cometkiwi-da]")
@scorer_options("metricx", "MetricX", "Folder or name.  [default: google/metricx-24-hybrid-large-v2p6]")
@scorer_options("bleurt", "BLEURT", "Folder of a checkpoint.")
@click.option(
    "--scorer-deadline",
    type=FiniteRange(0, min_open=True),
    default=7200.0,
    show_default=True,
    help="Timeout of each in seconds.",
)
@report_options
def mt(
    rows: Path,
    hypothesis_key: str,
    reference_key: str,
    json_file: Path | None,
    resamples: int,
    seed: int,
    scorer_deadline: float,
    **scorer_settings: Any,
) -> None:
    """BLEU and chrF of ROWS, a .jsonl or .parquet file that `grrm translate` wrote, for each language pair.

    A row whose translation is null is scored as an empty one, and counted. COMET and its like run in environments of
    their own, which `grrm scorer install` makes.
    """
    from grrm.cli.records import read_records, text, text_or_none
    from grrm.data.atomic import check_writable, write_json
    from grrm.evaluation.mt_scores import learned_scores, score_translations
    from grrm.gqm.groups import TranslationTask

    check_writable(json_file)
    workers = _workers(**scorer_settings)
    records = read_records(rows)
    if not any(hypothesis_key in row for row in records.rows):
        records.column(hypothesis_key, text, "text or null; run `grrm translate` first")
    hypotheses = records.column(hypothesis_key, text_or_none, "text or null")
    sources = records.column("src_text", text, "text")
    references = records.column(reference_key, text, "text, the reference")
    src_langs, trg_langs = (records.column(name, text, "a language") for name in ("src_lang", "trg_lang"))
    tasks = list(map(TranslationTask, sources, src_langs, trg_langs, references))
    texts = sources, hypotheses, references
    neural = {name: learned_scores(worker, *texts, scorer_deadline) for name, worker in workers.items()}
    results = score_translations(tasks, hypotheses, neural, n_resamples=resamples, seed=seed)
    _show_mt(results, [*workers])
    if json_file:
        by_pair = {name: asdict(scores) for name, scores in results.items()}
        write_json(json_file, {"seed": seed, "resamples": resamples, "results": by_pair})


def _workers(**settings: Any) -> dict[str, MetricWorker]:
    """The learned metrics that were asked for; a missing environment is told before anything is scored."""
    names = [name for name in METRIC_KINDS if settings[name]]
    for name in METRIC_KINDS.keys() - names:
        refuse_ineffective((f"{name}_env", f"{name}_model"), f"without --{name}")
    if not names:
        refuse_ineffective(("scorer_deadline",), "without a learned metric such as --comet")
    return {name: MetricWorker(name, settings[f"{name}_env"], settings[f"{name}_model"]) for name in names}


def _show_mt(results: Mapping[str, TranslationScores], scorers: list[str]) -> None:
    from grrm.cli.results import show_table

    headers = ["pair", "rows #", "missing #", "BLEU #", "chrF #", "chrF of sentences #", "95 % interval"]
    rows = [
        [
            name,
            str(scores.n_rows),
            str(scores.n_missing),
            "-" if scores.bleu is None else f"{scores.bleu.score:.2f}",
            f"{scores.chrf.score:.2f}",
            *mean_and_interval(scores.chrf_sentence, 2),
            *(cell for scorer in scorers for cell in mean_and_interval(scores.neural[scorer], 4)),
        ]
        for name, scores in results.items()
    ]
    for scorer in scorers:
        headers += [f"{scorer.upper()} #", "95 % interval"]
    metrics = [score for scores in results.values() for score in (scores.bleu, scores.chrf) if score is not None]
    show_table("Translations", headers, rows, sorted({metric.signature for metric in metrics}))


NAME = click.argument("name", type=click.Choice(list(METRIC_KINDS)))
FOLDER = click.option("--folder", type=FILE, help="Folder to install to.  [default: .venv-NAME]")


@click.group(cls=CommandGroup)
def scorer() -> None:
    """Install learned metrics, whose dependencies conflict with ours, in separate environments."""


@scorer.command()
@NAME
@FOLDER
@click.option("--python", default=sys.executable, help="Python interpreter of the environment.  [default: this one]")
def install(name: str, folder: Path | None, python: str) -> None:
    """Make the environment of a metric and install its packages there. What is there already is kept."""
    kind, folder = METRIC_KINDS[name], folder or environment_of(name)
    interpreter = folder / "bin" / "python"
    if not interpreter.is_file():
        _run([python, "-m", "venv", str(folder)], f"cannot make the environment '{folder}'")
    _run(
        [str(interpreter), "-m", "pip", "install", "--disable-pip-version-check", *kind.requirements],
        f"cannot install {kind.title} in '{folder}'",
    )
    _check(name, folder)
    model = f"model {kind.default_model}" if kind.default_model else f"no model yet: {kind.model_remedy}"
    click.echo(f"{kind.title} is installed in '{folder}', {model}")


@scorer.command()
@NAME
@FOLDER
def check(name: str, folder: Path | None) -> None:
    """Say whether the environment of a metric is complete. Loads no model."""
    folder = folder or environment_of(name)
    _check(name, folder)
    click.echo(f"{METRIC_KINDS[name].title} is installed in '{folder}'")


def _check(name: str, folder: Path) -> None:
    interpreter = folder / "bin" / "python"
    remedy = f"create it with `{install_command(name, folder)}`"
    if not interpreter.is_file():
        raise UserError(f"{METRIC_KINDS[name].title} has no environment at '{folder}': {remedy}")
    package = METRIC_KINDS[name].package
    completed = subprocess.run([str(interpreter), "-I", "-c", f"import {package}"], capture_output=True, text=True)
    if completed.returncode:
        last = (completed.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(f"the environment '{folder}' cannot import {package} ({last}): {remedy}")


def _run(command: list[str], problem: str) -> None:
    """Run a command whose output the user sees. Raises UserError when it fails or is not there."""
    try:
        status = subprocess.run(command).returncode
    except OSError as error:
        raise UserError(f"{problem} ({command[0]}: {error.strerror}): name another interpreter") from error
    if status:
        raise UserError(f"{problem} (exit status {status}): see the message above, mend its cause and start again")
