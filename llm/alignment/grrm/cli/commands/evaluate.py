"""`grrm eval`: how good a judge's rankings and a model's translations are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grrm.cli.options import COUNT, FILE, Command, FiniteRange

if TYPE_CHECKING:
    from grrm.evaluation.bootstrap import Interval
    from grrm.evaluation.mt_scores import TranslationScores
    from grrm.evaluation.neural_scorers import NeuralScorer
    from grrm.evaluation.ranking import RankingScores


@click.group("eval")
def evaluate() -> None:
    """Score rankings against gold scores, and translations against references."""


def report_options(command: Command) -> Command:
    """Where the report goes, and how its intervals are drawn."""
    for option in (
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the resampling."),
        click.option("--resamples", type=COUNT, default=1000, show_default=True, help="For the 95 % intervals."),
        click.option("--chart", type=FILE, help="Write a bar chart to this .png file."),
        click.option("--json", "json_file", type=FILE, help="Write the results to this .json file."),
    ):
        command = option(command)
    return command


@evaluate.command()
@click.argument("rows", type=FILE)
@click.option("--score-key", default="judge_scores", show_default=True, help="Column of the judge's lists of scores.")
@click.option("--gold-key", default="scores", show_default=True, help="Column of the lists of gold scores.")
@click.option(
    "--ties", type=click.Choice(["wrong", "half", "skip"]), default="wrong", show_default=True, help="A judge's ties."
)
@click.option(
    "--unscored", type=click.Choice(["skip", "wrong"]), default="skip", show_default=True, help="Pairs without scores."
)
@report_options
def ranking(
    rows: Path, score_key: str, gold_key: str, json_file: Path | None, chart: Path | None, resamples: int, **rules: Any
) -> None:
    """Pairwise ranking accuracy of ROWS, a .jsonl or .parquet file that `grrm rank` wrote.

    The share of candidate pairs that the judge orders as the gold scores do, of all pairs whose gold scores differ,
    with 95 % bootstrap intervals over groups, for each language pair and for all.
    """
    from grrm.cli.records import check_lengths, read_records, scores, text
    from grrm.cli.results import write_json
    from grrm.evaluation.ranking import JudgedGroup, score_by_language_pair

    _check_outputs(json_file, chart)
    records = read_records(rows)
    gold = records.column(gold_key, scores, "a list of numbers")
    judged = records.column(score_key, scores, "a list of numbers, null where there is none; run `grrm rank` first")
    check_lengths(records, f"{gold_key} and {score_key}", [gold, judged])
    names = zip(*(records.column(name, text, "a language") for name in ("src_lang", "trg_lang")), strict=True)
    groups = [JudgedGroup("-".join(pair), *both) for pair, *both in zip(names, gold, judged, strict=True)]
    found = score_by_language_pair(groups, n_resamples=resamples, **rules)
    _show_ranking(found, rules["ties"], rules["unscored"])
    if json_file:
        write_json(json_file, {**rules, "resamples": resamples, "results": {k: asdict(v) for k, v in found.items()}})
    _draw(
        chart,
        "Pairwise ranking accuracy",
        "share of pairs ordered as the gold scores, 95 % interval",
        {name: scores.accuracy for name, scores in found.items()},
        limits=(0.0, 1.0),
        baseline=0.5,
    )


def _show_ranking(found: Mapping[str, RankingScores], ties: str, unscored: str) -> None:
    from grrm.cli.results import show_table

    show_table(
        "Pairwise ranking accuracy",
        ["pair", "accuracy #", "95 % interval", "groups #", "pairs #", "scored #", "tied #", "zero variance #"],
        [
            [
                name,
                *_mean_and_interval(scores.accuracy, 3),
                str(scores.n_groups),
                str(scores.n_pairs),
                *(_percent(share) for share in (scores.coverage, scores.tied, scores.zero_variance)),
            ]
            for name, scores in found.items()
        ],
        [
            f"pairs: those whose gold scores differ; a judge's ties: {ties}; pairs it did not score: {unscored}",
            "zero variance: groups of two scored candidates or more that all have the same score",
        ],
    )


def _check_outputs(json_file: Path | None, chart: Path | None) -> None:
    """Refuse what could not be written, or drawn, before anything is scored."""
    from grrm.data.atomic import check_writable

    for path in (json_file, chart):
        if path is not None:
            check_writable(path)
    if chart is not None:
        import matplotlib  # noqa: F401


def scorer_options(name: str, title: str, model_help: str) -> Callable[[Command], Command]:
    """--NAME, --NAME-env and --NAME-model."""
    options = (
        click.option(f"--{name}", is_flag=True, help=f"Score with {title} too, in an environment of its own."),
        click.option(
            f"--{name}-env", type=FILE, default=Path(f".venv-{name}"), show_default=True, help=f"That of {title}."
        ),
        click.option(f"--{name}-model", help=model_help),
    )

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@evaluate.command()
@click.argument("rows", type=FILE)
@click.option("--hypothesis-key", default="translation", show_default=True, help="Column of the translations.")
@click.option("--reference-key", default="trg_text", show_default=True, help="Column of the references.")
@scorer_options("comet", "COMET", "Checkpoint file or name.  [default: Unbabel/wmt22-comet-da]")
@scorer_options("bleurt", "BLEURT", "Folder of a checkpoint.")
@click.option(
    "--scorer-deadline",
    type=FiniteRange(0, min_open=True),
    default=7200.0,
    show_default=True,
    help="Seconds that COMET or BLEURT may take.",
)
@report_options
def mt(
    rows: Path,
    hypothesis_key: str,
    reference_key: str,
    json_file: Path | None,
    chart: Path | None,
    resamples: int,
    seed: int,
    **scorer_settings: Any,
) -> None:
    """BLEU and chrF of ROWS, a .jsonl or .parquet file that `grrm translate` wrote, for each language pair.

    A row whose translation is null is scored as an empty one, and counted. COMET and BLEURT run as programs in
    environments of their own; where one is missing, the error says how to create it.
    """
    from grrm.cli.records import read_records, text, text_or_none
    from grrm.cli.results import write_json
    from grrm.evaluation.mt_scores import score_translations
    from grrm.gqm.groups import TranslationTask

    _check_outputs(json_file, chart)
    scorers = _scorers(**scorer_settings)
    records = read_records(rows)
    if not any(hypothesis_key in row for row in records.rows):
        records.column(hypothesis_key, text, "text or null; run `grrm translate` first")
    hypotheses = records.column(hypothesis_key, text_or_none, "text or null")
    sources = records.column("src_text", text, "text")
    references = records.column(reference_key, text, "text, the reference")
    src_langs, trg_langs = (records.column(name, text, "a language") for name in ("src_lang", "trg_lang"))
    tasks = list(map(TranslationTask, sources, src_langs, trg_langs, references))
    neural = {scorer.name: scorer.score(sources, hypotheses, references) for scorer in scorers}
    found = score_translations(tasks, hypotheses, neural, n_resamples=resamples, seed=seed)
    _show_mt(found, [scorer.name for scorer in scorers])
    if json_file:
        write_json(json_file, {"resamples": resamples, "results": {name: asdict(s) for name, s in found.items()}})
    _draw(
        chart,
        "chrF of translations",
        "mean chrF of sentences, 95 % interval",
        {name: scores.chrf_sentence for name, scores in found.items()},
        limits=(0.0, 100.0),
    )


def _scorers(scorer_deadline: float, **settings: Any) -> list[NeuralScorer]:
    """The scorers that were asked for; a missing environment is told before anything is scored."""
    from grrm.evaluation.neural_scorers import SCORERS, NeuralScorer

    return [
        NeuralScorer(name, settings[f"{name}_env"], settings[f"{name}_model"], scorer_deadline)
        for name in SCORERS
        if settings[name]
    ]


def _show_mt(found: Mapping[str, TranslationScores], scorers: list[str]) -> None:
    from grrm.cli.results import show_table

    headers = ["pair", "rows #", "missing #", "BLEU #", "chrF #", "chrF of sentences #", "95 % interval"]
    rows = [
        [
            name,
            str(scores.n_rows),
            str(scores.n_missing),
            "-" if scores.bleu is None else f"{scores.bleu.score:.2f}",
            f"{scores.chrf.score:.2f}",
            *_mean_and_interval(scores.chrf_sentence, 2),
            *(cell for scorer in scorers for cell in _mean_and_interval(scores.neural[scorer], 4)),
        ]
        for name, scores in found.items()
    ]
    for scorer in scorers:
        headers += [f"{scorer.upper()} #", "95 % interval"]
    metrics = [score for scores in found.values() for score in (scores.bleu, scores.chrf) if score is not None]
    show_table("Translations", headers, rows, sorted({metric.signature for metric in metrics}))


def _draw(chart: Path | None, title: str, axis: str, bars: Mapping[str, Interval | None], **options: Any) -> None:
    if chart is not None:
        from grrm.cli.results import write_bar_chart

        write_bar_chart(chart, title, axis, bars, **options)


def _mean_and_interval(interval: Interval | None, digits: int) -> tuple[str, str]:
    if interval is None:
        return "-", "-"
    return f"{interval.mean:.{digits}f}", f"{interval.low:.{digits}f} to {interval.high:.{digits}f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
