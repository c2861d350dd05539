"""`grrm annotate`: groups of samples for people, on a page or with Pearmut, and what they say of them as gold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grrm.cli.options import COUNT, FILE, CommandGroup, language_options, refuse_ineffective
from grrm.errors import UserError

if TYPE_CHECKING:
    from grrm.cli.records import Records
    from grrm.evaluation.annotation.tasks import Task

_DOCUMENT_KEYS = ("document", "page", "doc_id")  # the column of the project's own corpora is `page`


@click.group(cls=CommandGroup)
def annotate() -> None:
    """Export groups of samples to annotators, and import their scores as gold for judges."""


@annotate.command("export")
@click.argument("rows", type=FILE)
@click.option("--page", type=FILE, help="Write one .html file that needs no network and saves annotations.")
@click.option("--pearmut", type=FILE, help="Write a campaign for Pearmut, protocol cESA, as .json.")
@click.option("--groups", "n_groups", type=COUNT, default=50, show_default=True, help="Groups to annotate.")
@click.option(
    "--group-size", type=click.IntRange(2, 8), default=4, show_default=True, help="Maximum candidates per group."
)
@click.option(
    "--choose",
    "by",
    type=click.Choice(["disagreement", "random"]),
    default="disagreement",
    show_default=True,
    help="Groups on which judges disagree most (one judge: with the closest scores), or random ones.",
)
@click.option("--score-key", "score_keys", multiple=True, help="Scores of a judge.  [default: judge_scores]")
@click.option("--document-key", help="Column of documents.  [default: document, page or doc_id]")
@click.option("--context", type=click.IntRange(min=0), default=2, show_default=True, help="Preceding segments to show.")
@click.option("--annotators", type=COUNT, default=1, show_default=True, help="Of the campaign; each sees all groups.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed.")
def export_groups(
    rows: Path,
    page: Path | None,
    pearmut: Path | None,
    n_groups: int,
    group_size: int,
    by: str,
    context: int,
    annotators: int,
    seed: int,
    score_keys: tuple[str, ...],
    document_key: str | None,
) -> None:
    """Choose groups of ROWS and write them for annotators.

    ROWS is the output folder of an RL run, whose rollouts and rejudged verdicts are read, or what `grrm rank` wrote;
    other judges' scores are columns that --score-key names, repeated for several. Annotators do not see scores.
    """
    from grrm.data.atomic import check_writable, write_json
    from grrm.evaluation.annotation.campaign import page_data, pearmut_campaign
    from grrm.evaluation.annotation.tasks import choose, distinct, with_context
    from grrm.tracking.report.page import write_annotation_page

    if page is None and pearmut is None:
        raise UserError("nothing to write; give --page FILE.html, --pearmut FILE.json or both")
    if pearmut is None:
        refuse_ineffective(("annotators",), "without --pearmut")
    check_writable(page, pearmut)
    if rows.is_dir():
        if score_keys or document_key:
            raise UserError(f"{rows} is a run, which has no columns; leave out --score-key and --document-key")
        tasks = list(_of_run(rows))
    else:
        tasks = list(_of_rows(rows, score_keys, document_key))
    usable = [task for task in map(distinct, with_context(tasks, context)) if task is not None]
    if n_unusable := len(tasks) - len(usable):
        click.echo(f"{n_unusable} groups left out: fewer than two different texts, or one that begins as a picture")
    if not usable:
        raise UserError(f"{rows} has no group of two different translations; sample more of them")
    chosen = choose(usable, n_groups, group_size, by=by, seed=seed)
    if page is not None:
        write_annotation_page(page_data(chosen), page)
        click.echo(page.resolve().as_uri())
    if pearmut is not None:
        write_json(pearmut, pearmut_campaign(chosen, annotators))
    click.echo(f"{len(chosen)} of {len(usable)} groups, {sum(len(task.mt_texts) for task in chosen)} texts", err=True)


def _of_run(run: Path) -> Iterator[Task]:
    """The groups of a run's rollouts with the scores of its judge, of the parts of a mixture, and of other judges."""
    from grrm.evaluation.annotation.tasks import Task
    from grrm.tracking.report.selection import read_opinions
    from grrm.tracking.rollout_dump import ROLLOUTS, read_rollouts

    others = read_opinions(run)
    n_groups = 0
    for record in read_rollouts(run / ROLLOUTS):
        n_groups += 1
        key, candidates = (record["step"], record["group_id"]), record["candidates"]
        parts = (record["verdict"] or {}).get("parts") or ()
        own = {part["name"]: part["scores"] for part in parts} or {"": [candidate["score"] for candidate in candidates]}
        opinions = own | {name: said[key]["scores"] for name, said in others.items() if key in said}
        texts = tuple(candidate["translation"] or "" for candidate in candidates)
        languages = record["src_lang"], record["trg_lang"]
        yield Task(f"{key[0]}/{key[1]}", record["source"], record["reference"], *languages, texts, opinions)
    if not n_groups:
        raise UserError(f"{run} has no rollouts; give the output folder of an RL run, or a file of `grrm rank`")


def _of_rows(path: Path, score_keys: tuple[str, ...], document_key: str | None) -> Iterator[Task]:
    """The rows of `grrm rank`, the scores of several orders as several opinions."""
    from grrm.cli.records import language, read_records, text, texts, usable_rows
    from grrm.evaluation.annotation.tasks import Task

    records = read_records(path)
    usable = usable_rows(
        records,
        [
            ("src_text", text, "text"),
            ("src_lang", language, "a language"),
            ("trg_lang", language, "a language"),
            ("mt_texts", texts, "a list of texts"),
        ],
    )
    columns = {name for row in usable.records.rows for name in row}
    if missing := [name for name in (*score_keys, *filter(None, [document_key])) if name not in columns]:
        raise UserError(f"{path} has no column {missing[0]}; it has {', '.join(sorted(columns))}")
    document_key = document_key or next((name for name in _DOCUMENT_KEYS if name in columns), None)
    for number, row in zip(usable.numbers, usable.records.rows, strict=True):
        document = row.get(document_key) if document_key else None
        yield Task(
            str(number),
            row["src_text"],
            row["trg_text"] if isinstance(row.get("trg_text"), str) else None,
            row["src_lang"],
            row["trg_lang"],
            tuple(candidate or "" for candidate in row["mt_texts"]),
            _opinions(records, number, score_keys),
            None if document is None or document != document else str(document),  # NaN, which pandas writes for none
            _position(row.get("position")),
        )


def _opinions(records: Records, number: int, score_keys: Sequence[str]) -> dict[str, list[float | None]]:
    """The scores in a row (from 1) by their columns; those of several orders by the orders, unless columns are named.

    Raises UserError where they are not one for each of `mt_texts`.
    """
    from grrm.cli.records import lists_of_scores, optional, scores
    from grrm.cli.verdict_columns import SCORES

    row = records.rows[number - 1]
    names = [name for name in score_keys or (SCORES,) if row.get(name)]
    opinions = {name: records.cell(number, name, scores, "a list of scores") for name in names}
    orders = records.cell(number, "judge_order_scores", optional(lists_of_scores), "lists of scores, one per order")
    if not score_keys and orders and len(orders) > 1:
        opinions = {f"order {nth}": own for nth, own in enumerate(orders)}
    if wrong := next((name for name, own in opinions.items() if len(own) != len(row["mt_texts"])), None):
        raise UserError(f"{records.origin} row {number} has not as many {wrong} as mt_texts; rank the rows again")
    return opinions


def _position(value: Any) -> float | None:
    """A finite number, also in a text as CSV has it; None for anything else."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if not isfinite(number):
        return None
    return number if isinstance(value, str) else value


@annotate.command("import")
@click.argument("files", type=FILE, nargs=-1, required=True, metavar="FILE...")
@click.option("--out", type=FILE, required=True, help="The .parquet file of gold groups.")
@click.option(
    "--merge",
    type=click.Choice(["mean", "z"]),
    default="mean",
    show_default=True,
    help="Mean over annotators of the scores, or of z-scores: each brought to the mean and spread of all.",
)
@language_options
@click.option("--resamples", type=COUNT, default=1000, show_default=True, help="Bootstrap resamples.")
@click.option("--json", "json_file", type=FILE, help="Write the agreement to this .json file.")
def import_annotations(
    files: tuple[Path, ...], out: Path, merge: str, resamples: int, json_file: Path | None, **options: Any
) -> None:
    """Read FILE..., what the page saved or logs of Pearmut, as gold groups to train judges on.

    Scores become 0 to 10 and keep their decimals; spans stay in a column. The table compares each annotator with the
    mean of the others.
    """
    from dataclasses import asdict

    from grrm.cli.reports import mean_and_interval
    from grrm.cli.results import show_table
    from grrm.data.atomic import check_writable, write_json
    from grrm.data.parquet import check_parquet
    from grrm.evaluation.annotation.gold import gold_groups, merged_scores, people_agreement, write_gold
    from grrm.evaluation.annotation.intake import read_annotations

    check_parquet(out, "groups")
    check_writable(out, json_file)
    languages = options["src_lang"], options["trg_lang"]
    groups = gold_groups(annotation for path in files for annotation in read_annotations(path, languages))
    write_gold(out, groups, merged_scores(groups, by=merge))
    agreed = people_agreement(groups, n_resamples=resamples)
    n_spans = sum(len(spans) for group in groups for spans in group.spans)
    click.echo(f"{len(groups)} groups, {n_spans} errors -> {out}", err=True)
    if agreed:
        show_table(
            "Annotators, each beside the mean of the others",
            ("annotator", "groups #", "pairs #", "95 % interval", "tau-b #", "95 % interval"),
            [
                [
                    person.annotator,
                    str(person.n_groups),
                    *mean_and_interval(person.accuracy, 3),
                    *mean_and_interval(person.kendall_tau_b, 3),
                ]
                for person in agreed
            ],
            ("pairs: acc_eq, pairs of a group in the same order, ties calibrated; tau-b: Kendall's, within groups",),
        )
    if json_file is not None:
        write_json(
            json_file, {"merge": merge, "groups": len(groups), "annotators": [asdict(person) for person in agreed]}
        )
