"""`grrm rank`: a judge's scores and ranking of the candidates of each source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grrm.cli.devices import SharedCommand, devices_option
from grrm.cli.folders import over_folder, shared, works_on_folder
from grrm.cli.options import (
    COUNT,
    FILE,
    NAMES,
    JudgeName,
    JudgeOption,
    explicit_model_options,
    input_options,
    is_explicit,
    model_options,
    refuse_ineffective,
    sampling_options,
    take_model_options,
)
from grrm.cli.verdict_columns import SCORES, judged, show_verdicts, take_earlier, verdict_types, with_empty_rows
from grrm.engine.options import check_reward_model_options
from grrm.entry import read_assignments
from grrm.gqm.mt_prompts import MT_PROMPT_TYPES
from grrm.gqm.verification import VERIFIER_PROMPT_TYPES
from grrm.judges.metrics import JudgeMetrics

if TYPE_CHECKING:
    from grrm.cli.records import Cell, Records
    from grrm.gqm.groups import Group
    from grrm.judges.interface import Judge
    from grrm.judges.spec import JudgeSpec

METRICS = ("chrf", "chrf++", "bleu")
OF_MODELS = (*(flag.removeprefix("--") for flag in NAMES.names.values()), "chat_template")
OF_GROUPS = ("prompt_type", "add_example", "shuffle", "permutations")
OF_GENERATORS = ("seed", "temperature", "top_p", "max_new_tokens", "retry", "prompt_length", "grammar", *OF_GROUPS)
# The flags that set an option of a judge, by what such a judge needs.
FLAGS = {
    **dict.fromkeys((*OF_GENERATORS, "verifier_prompt", "think"), "generator"),
    **dict.fromkeys(("mt_prompt_type", "any_language_pair"), "reward model"),
    "metric": "nothing",
    "scorer_env": "metric",
}
# The name of a judge's option where its flag has another one.
OPTION_OF = {"retry": "retries", "grammar": "mode", "mt_prompt_type": "prompt_type", "scorer_env": "environment"}
_WHY = {"nothing": ", which has no model", "reward model": ", which generates nothing"}


@click.command(cls=SharedCommand)
@click.argument("rows", type=FILE)
@model_options
@input_options
@sampling_options(temperature=0.0, max_new_tokens=8192, retry=6)
@click.option("--judge", cls=JudgeOption, type=JudgeName(), metavar="NAME", default="gqm", show_default=True)
@click.option(
    "--judge-option",
    "judge_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of the judge, such as rule=gsm8k, by the reward server's name; repeat for several.",
)
@click.option(
    "--scorer-env", type=FILE, help="With learned metrics such as comet: the environment.  [default: .venv-NAME]"
)
@click.option(
    "--mt-prompt-type",
    type=click.Choice(MT_PROMPT_TYPES),
    help="With --judge ranker or rm: the translation prompt that it was trained with.  [default: as its folder "
    "records, else Tower]",
)
@click.option(
    "--any-language-pair",
    is_flag=True,
    help="With --judge ranker or rm: score language pairs that it was not trained on, too.",
)
@click.option(
    "--metric",
    type=click.Choice(METRICS),
    help="Metric of --judge text_metric and of consensus.  [default: chrf]",
)
@click.option(
    "--verifier-prompt",
    type=click.Choice(VERIFIER_PROMPT_TYPES),
    default="tinyv",
    show_default=True,
    help="With --judge verifier or rule+verifier: the prompt it was trained with.",
)
@click.option("--think", is_flag=True, help="With --judge verifier or rule+verifier: a reasoning model.")
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
    "--prompt-type",
    type=click.Choice(["score", "ranking", "ranking_score"]),
    default="ranking_score",
    show_default=True,
    help="Output requested from the judge.",
)
@click.option("--add-example", is_flag=True, help="Show the judge an example of a verdict.")
@click.option("--shuffle", is_flag=True, help="Show the candidates in a seeded random order.")
@click.option(
    "--permutations", type=COUNT, default=1, show_default=True, help="Number of candidate orders to judge and average."
)
@click.option("--prompt-length", type=COUNT, help="Maximum judge prompt in tokens.  [default: the model's limit]")
@click.option(
    "--grammar",
    type=click.Choice(["exact", "tolerant", "compat"]),
    default="tolerant",
    show_default=True,
    help="Grammar of verdicts.",
)
@click.option(
    "--resume", is_flag=True, help="ROWS are what an earlier run wrote: judge those that no server answered for."
)
@devices_option
@over_folder
def rank(
    rows: Path, out: Path | None, batch_rows: int, score_key: str, judge_options: tuple[str, ...], **options: Any
) -> None:
    """Score and rank the candidates of each of ROWS with a judge.

    ROWS is a file of rows, such as .parquet, .jsonl or .csv, with the columns src_text, src_lang, trg_lang and
    mt_texts, or text (`-` is standard input) with a source and its candidates per line, separated by tabs. Judges of
    answers need trg_text and no languages. ROWS may also be a folder of files like de2en.parquet, with one for --out.

    Added are judge_scores, judge_statuses, judge_ranking (positions, best first), judge_response, judge_attempts,
    judge_rejections (why replies could not be read), judge_tokens and judge_order_scores, all null in rows that cannot
    be judged.
    """
    from grrm.cli.records import language, read_records, text, text_or_none, texts, usable_rows
    from grrm.cli.results import result_sink
    from grrm.gqm.groups import TranslationTask
    from grrm.inference.rank import group_of
    from grrm.judges.registry import spec_of

    records = read_records(rows, _source_and_candidates)
    earlier = take_earlier(records, score_key) if options.pop("resume") else {}
    src_text_key, src_lang_key, mt_key = (options.pop(f"{name}_key") for name in ("src_text", "src_lang", "mt"))
    src_lang, trg_lang = options.pop("src_lang"), options.pop("trg_lang")
    spec = spec_of(options.pop("judge"))
    of_answers, reads_references = spec.of_answers, spec.reference != "unread"
    cells: list[Cell] = [(src_text_key, text, "text"), (mt_key, texts, "a list of texts")]
    cells += [(src_lang_key, language, "a language")] * (src_lang is None and not of_answers)
    cells += [("trg_lang", language, "a language")] * (trg_lang is None and not of_answers)
    reference: Callable[[Any], str | None] = text if spec.reference == "needed" else text_or_none
    cells += [("trg_text", reference, "text")] * reads_references
    what = "left out" if works_on_folder() else "not judged"
    usable = usable_rows(records, cells, what)
    if usable.reasons:
        click.echo(f"{records.origin}: {usable.reasons.total()} rows {what} ({usable.reasons_summary()})", err=True)
    written, records = usable.records if works_on_folder() else records, usable.records
    for name, override in ((src_lang_key, src_lang), ("trg_lang", trg_lang)):
        for row in filter(None, written.rows if override else ()):  # the row of a broken line stays empty
            row[name] = override
    sources = records.column(src_text_key, text, "text")
    tasks = map(
        TranslationTask,
        sources,
        _languages(records, src_lang_key, src_lang, of_answers),
        _languages(records, "trg_lang", trg_lang, of_answers),
        records.column("trg_text", reference, "text") if reads_references else [None] * len(sources),
    )
    lists = records.column(mt_key, texts, "a list of texts")
    numbered = zip(usable.numbers, tasks, lists, strict=True)
    groups = [group_of(number - 1, task, candidates) for number, task, candidates in numbered]
    metrics = shared("metrics", JudgeMetrics)
    assignments = read_assignments(judge_options, "judge option") or {}
    open_judge = _opener(spec, groups, metrics, options, assignments)
    types = verdict_types() if score_key == SCORES else {score_key: verdict_types()[SCORES]}
    with result_sink(out, written, types, lambda _: show_verdicts(groups, columns)) as write:
        columns = judged(lambda: shared("judge", open_judge), groups, batch_rows, metrics, earlier)
        new = columns if score_key == SCORES else {score_key: columns[SCORES]}
        write(new if written is records else with_empty_rows(new, usable.numbers, len(written.rows)))


def _source_and_candidates(line: str) -> dict[str, Any]:
    source, *candidates = line.split("\t")
    if not candidates:
        raise ValueError("holds no candidate; separate source and candidates by tabs")
    return {"src_text": source, "mt_texts": candidates}


def _languages(records: Records, name: str, override: str | None, of_answers: bool) -> list[str]:
    from grrm.cli.records import languages

    return [""] * len(records.rows) if of_answers and override is None else languages(records, name, override)


def _opener(
    spec: JudgeSpec, groups: Sequence[Group], metrics: JudgeMetrics, flags: dict[str, Any], assignments: dict[str, Any]
) -> Callable[[], Judge]:
    """Return what opens the judge with the options of its flags and `assignments`.

    Raises UserError for what can be refused before that.
    """
    from grrm.inference.rank import METRIC_SECONDS
    from grrm.judges.spec import Process

    _refuse_model_options(spec)
    model, template = take_model_options(flags), flags.pop("chat_template")
    options = spec.read({**_options_of_flags(spec, flags, assignments), **assignments})
    for group in groups:
        options.check_task(group.task)

    def reward_model(name: str, options: Any) -> Judge:
        from grrm.inference.reward_scoring import open_reward_judge

        recorded = template if is_explicit("--chat-template") else None
        opened = open_reward_judge(
            str(model.model), name, options, chat_template=recorded, dtype=model.dtype, metrics=metrics
        )
        opened.warns = False  # the summary says it
        return opened

    process = Process(
        spec.name,
        generator=lambda: model.open(template, marks_unanswered=True),
        reward_model=reward_model,
        model=model.model,
        seconds=model.deadline or METRIC_SECONDS,
        metrics=metrics,
    )
    return lambda: options.open(process)


def _refuse_model_options(spec: JudgeSpec) -> None:
    """Raise UserError for options of a model that the judge has no use for."""
    if spec.needs == "reward model":
        check_reward_model_options(explicit_model_options(), NAMES)
    elif spec.needs != "generator":
        allowed = ("model", "deadline") if spec.needs == "metric" else ()
        refuse_ineffective(tuple(name for name in OF_MODELS if name not in allowed), _with_judge(spec))


def _options_of_flags(spec: JudgeSpec, flags: dict[str, Any], assignments: dict[str, Any]) -> dict[str, Any]:
    """Return the judge's options that flags set. Raises UserError for one without effect, or that is given twice."""
    options: dict[str, Any] = {}
    for flag, needs in FLAGS.items():
        option = OPTION_OF.get(flag, flag)
        if spec.needs != needs or option not in spec.options.model_fields:
            why = ", which sees one candidate at a time" if flag in OF_GROUPS else ""
            refuse_ineffective((flag,), _with_judge(spec) + ("" if spec.needs in _WHY else why))
        elif option in assignments:
            refuse_ineffective((flag,), f"beside --judge-option {option}")
        elif flags[flag] is not None:
            options[option] = str(flags[flag]) if isinstance(flags[flag], Path) else flags[flag]
    return options


def _with_judge(spec: JudgeSpec) -> str:
    return f"with --judge {spec.name}{_WHY.get(spec.needs, '')}"
