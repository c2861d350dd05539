"""`grrm rank`: a judge's scores and ranking of the candidates of each source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grrm.cli.devices import SharedCommand, devices_option
from grrm.cli.folders import leaves_out_rows, over_folder, shared
from grrm.cli.judge_options import choose_judge, context_segments_of, judge_options
from grrm.cli.options import FILE, input_options
from grrm.cli.verdict_columns import (
    SCORES,
    check_same_judge,
    judged,
    show_verdicts,
    take_earlier,
    verdict_types,
    with_empty_rows,
)
from grrm.entry import read_assignments
from grrm.judges.metrics import JudgeMetrics

if TYPE_CHECKING:
    from grrm.cli.records import Cell, Records
    from grrm.gqm.groups import ContextSegment, TranslationTask
    from grrm.judges.spec import JudgeSpec


@click.command(cls=SharedCommand)
@click.argument("rows", type=FILE)
@judge_options
@input_options
@click.option("--src-text-key", default="src_text", show_default=True, help="Column of the sources.")
@click.option("--src-lang-key", default="src_lang", show_default=True, help="Column of their languages.")
@click.option("--mt-key", default="mt_texts", show_default=True, help="Column of the lists of candidates.")
@click.option(
    "--score-key",
    default=SCORES,
    show_default=True,
    help="Column for the lists of scores. With another name only that one is added; `scores` is gold for training.",
)
@click.option(
    "--resume", is_flag=True, help="ROWS is the output of an earlier run: judge only the rows that no server answered."
)
@devices_option
@over_folder(lambda options: None if options["resume"] else options["score_key"])
def rank(
    rows: Path, out: Path | None, batch_rows: int, score_key: str, judge_options: tuple[str, ...], **options: Any
) -> None:
    """Score and rank the candidates of each of ROWS with a judge.

    ROWS is a file of rows, such as .parquet, .jsonl or .csv, with the columns src_text, src_lang, trg_lang and
    mt_texts, or text (`-` is standard input) with a source and its candidates per line, separated by tabs. ROWS may
    also be a folder of files like de2en.parquet, with one for --out, or --inplace.

    Judges of answers need trg_text and no languages, judges that show context document and position.

    Added are judge_scores, judge_statuses, judge_ranking (positions, best first), judge_response, judge_attempts,
    judge_rejections (why replies could not be read), judge_tokens, judge_order_scores and judge_settings, all null in
    rows that cannot be judged.
    """
    from grrm.cli.records import language, read_records, tell_usable_rows, text, text_or_none, texts
    from grrm.cli.results import result_sink
    from grrm.inference.rank import group_of
    from grrm.judges.registry import spec_of

    records = read = read_records(rows, _source_and_candidates)
    earlier = take_earlier(records, score_key) if options.pop("resume") else {}
    if earlier:
        click.echo(f"{len(earlier)} of {len(records.rows)} rows keep the verdicts that they have", err=True)
    src_text_key, src_lang_key, mt_key = (options.pop(f"{name}_key") for name in ("src_text", "src_lang", "mt"))
    languages = {src_lang_key: options.pop("src_lang"), "trg_lang": options.pop("trg_lang")}  # None: the column's
    spec = spec_of(options.pop("judge"))
    cells: list[Cell] = [(src_text_key, text, "text"), (mt_key, texts, "a list of texts")]
    own = [name for name, override in languages.items() if override is None and not spec.of_answers]
    cells += [(name, language, "a language") for name in own]
    cells += [("trg_text", text if spec.reference == "needed" else text_or_none, "text")] * (spec.reference != "unread")
    usable = tell_usable_rows(records, cells, "left out" if leaves_out_rows() else "not judged")
    written, records = usable.records if leaves_out_rows() else records, usable.records
    for name, override in languages.items():
        for row in filter(None, written.rows if override else ()):  # the row of a broken line stays empty
            row[name] = override
    tasks = _tasks(records, src_text_key, languages, spec)
    assignments = read_assignments(judge_options, "judge option") or {}
    n_segments = context_segments_of(spec, assignments, options["model"])
    if n_segments:
        contexts = _contexts(read, {src_text_key: None, "trg_text": None, **languages}, n_segments)
        tasks = [
            replace(task, context=contexts[number - 1]) for number, task in zip(usable.numbers, tasks, strict=True)
        ]
    lists = records.column(mt_key, texts, "a list of texts")
    numbered = zip(usable.numbers, tasks, lists, strict=True)
    groups = [group_of(number - 1, task, candidates) for number, task, candidates in numbered]
    metrics = shared("metrics", JudgeMetrics)
    judge = choose_judge(spec, groups, metrics, options, assignments)
    check_same_judge(read.origin, earlier.values(), judge.settings)
    judge = judge._replace(open=partial(shared, "judge", judge.open))
    types = verdict_types() if score_key == SCORES else {score_key: verdict_types()[SCORES]}
    with result_sink(out, written, types, lambda _: show_verdicts(groups, columns)) as write:
        columns = judged(judge, groups, batch_rows, metrics, earlier, resumes=True)
        new = columns if score_key == SCORES else {score_key: columns[SCORES]}
        write(new if written is records else with_empty_rows(new, usable.numbers, len(written.rows)))


def _source_and_candidates(line: str) -> dict[str, Any]:
    source, *candidates = line.split("\t")
    if not candidates:
        raise ValueError("holds no candidate; separate source and candidates by tabs")
    return {"src_text": source, "mt_texts": candidates}


def _tasks(
    records: Records, src_text_key: str, languages: Mapping[str, str | None], spec: JudgeSpec
) -> list[TranslationTask]:
    """The task of each usable row; of a judge of answers those without languages have "" in their place."""
    from grrm.cli.records import languages as languages_of
    from grrm.cli.records import text, text_or_none
    from grrm.gqm.groups import TranslationTask

    nothing = [None] * len(records.rows)
    pairs = (
        [""] * len(nothing) if spec.of_answers and override is None else languages_of(records, name, override)
        for name, override in languages.items()
    )
    references = nothing if spec.reference == "unread" else records.column("trg_text", text_or_none, "text")
    return list(map(TranslationTask, records.column(src_text_key, text, "text"), *pairs, references))


def _contexts(records: Records, columns: Mapping[str, str | None], n_segments: int) -> list[tuple[ContextSegment, ...]]:
    """The context of each row, judged or not; `columns` are those of texts and languages, and what overrides them."""
    from grrm.data.documents import LocatedRow, contexts_of

    located = []
    for row in records.rows:
        texts = [override or row.get(name) for name, override in columns.items()]
        located.append(LocatedRow.of_row(row)._replace(**dict(zip(LocatedRow._fields, texts, strict=False))))
    return contexts_of(located, n_segments, lambda index: f"{records.origin} row {index + 1}")
