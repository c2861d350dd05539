"""`grrm rank`: a judge's scores and ranking of the candidates of each source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grrm.cli.commands.scorer import metric_opener
from grrm.cli.folders import kept, over_folder, works_on_folder
from grrm.cli.options import (
    COUNT,
    FILE,
    NAMES,
    JudgeName,
    given_model_options,
    input_options,
    is_given,
    model_options,
    refuse_given,
    sampling_options,
    take_model_options,
)
from grrm.cli.verdict_columns import SCORES, judged, show_verdicts, take_earlier, verdict_types, with_empty_rows
from grrm.engine.options import check_reward_model_options
from grrm.entry import read_assignments
from grrm.gqm.mt_prompts import MT_PROMPT_TYPES
from grrm.gqm.verification import VERIFIER_PROMPT_TYPES
from grrm.judges.metric_worker import METRIC_KINDS
from grrm.judges.metrics import JudgeMetrics
from grrm.judges.text_metric import METRICS

if TYPE_CHECKING:
    from grrm.cli.records import Cell, Records
    from grrm.gqm.groups import Group
    from grrm.inference.rank import RankSettings
    from grrm.judges.interface import Judge

REWARD_MODELS = ("ranker", "rm")
WITH_METRIC = ("consensus", "text_metric")
LEARNED_METRICS = tuple(METRIC_KINDS)
VERIFIERS = ("verifier", "rule+verifier")
OF_ANSWERS = ("answer", "rubric", "rule+rubric", *VERIFIERS)
OF_MODELS = (*(flag.removeprefix("--") for flag in NAMES.names.values()), "chat_template")
OF_REPLIES = ("seed", "temperature", "top_p", "max_new_tokens", "retry", "prompt_length", "grammar")
OF_REWARD_MODELS = ("mt_prompt_type", "any_language_pair")
OF_GROUPS = ("prompt_type", "add_example", "shuffle", "permutations")
OF_VERIFIERS = ("verifier_prompt", "think")
OF_JUDGES = (*OF_REPLIES, *OF_GROUPS, *OF_REWARD_MODELS, *OF_VERIFIERS, "metric", "scorer_env")
# The name of a judge's option where its flag has another one.
OPTION_OF = {"retry": "retries", "grammar": "mode", "mt_prompt_type": "prompt_type", "scorer_env": "environment"}


@click.command()
@click.argument("rows", type=FILE)
@model_options
@input_options
@sampling_options(temperature=0.0, max_new_tokens=8192, retry=6)
@click.option(
    "--judge",
    type=JudgeName(["gqm", "grrm", "sqm", "pairwise", *OF_ANSWERS, *REWARD_MODELS, *WITH_METRIC, *LEARNED_METRICS]),
    default="gqm",
    show_default=True,
    help="gqm (or grrm): generative group judge; sqm: generative judge of one translation; ranker, rm: reward models; "
    "consensus: agreement of the samples; text_metric: metric against the reference in column trg_text; comet, "
    "cometkiwi, metricx, bleurt: learned metrics in a separate environment; answer, rubric, verifier, rule+rubric, "
    "rule+verifier: judges of answers to the question in src_text, with the true answer or scoring criteria in "
    "trg_text; or a function of your own, module:function or FILE.py:function.",
)
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
    type=click.Choice(list(METRICS)),
    default="chrf",
    show_default=True,
    help="Metric of --judge text_metric and of consensus.",
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
    "mode",
    type=click.Choice(["exact", "tolerant", "compat"]),
    default="tolerant",
    show_default=True,
    help="Grammar of verdicts.",
)
@click.option(
    "--resume", is_flag=True, help="ROWS are what an earlier run wrote: judge those that no server answered for."
)
@over_folder
def rank(
    rows: Path, out: Path | None, batch_rows: int, score_key: str, judge_options: tuple[str, ...], **options: Any
) -> None:
    """Score and rank the candidates of each of ROWS with a judge.

    ROWS is a .parquet or .jsonl file with the columns src_text, src_lang, trg_lang and mt_texts, or text (`-` is
    standard input) with a source and its candidates per line, separated by tabs. Judges of answers need trg_text and no
    languages. Added are judge_scores, judge_statuses, judge_ranking (positions, best first), judge_response,
    judge_attempts, judge_rejections (why replies could not be read), judge_tokens and judge_order_scores, all null in
    rows that cannot be judged. ROWS may also be a folder of files like de2en.parquet, with one for --out.
    """
    from grrm.cli.records import language, read_records, text, text_or_none, texts, usable_rows
    from grrm.cli.results import result_sink
    from grrm.gqm.groups import TranslationTask
    from grrm.inference.rank import group_of

    records = read_records(rows, _source_and_candidates)
    earlier = take_earlier(records, score_key) if options.pop("resume") else {}
    src_text_key, src_lang_key, mt_key = (options.pop(f"{name}_key") for name in ("src_text", "src_lang", "mt"))
    src_lang, trg_lang = options.pop("src_lang"), options.pop("trg_lang")
    is_own, of_answers = ":" in options["judge"], options["judge"] in OF_ANSWERS
    needs_references = of_answers or options["judge"] in ("text_metric", "comet", "bleurt")
    reads_references = needs_references or is_own or options["judge"] == "metricx"
    cells: list[Cell] = [(src_text_key, text, "text"), (mt_key, texts, "a list of texts")]
    cells += [(src_lang_key, language, "a language")] * (src_lang is None and not of_answers)
    cells += [("trg_lang", language, "a language")] * (trg_lang is None and not of_answers)
    reference: Callable[[Any], str | None] = text if needs_references else text_or_none
    cells += [("trg_text", reference, "text")] * reads_references
    what = "left out" if works_on_folder() else "not judged"
    usable = usable_rows(records, cells, what)
    if usable.reasons:
        click.echo(f"{records.place}: {usable.reasons.total()} rows {what} ({usable.reasons_told()})", err=True)
    written, records = usable.records if works_on_folder() else records, usable.records
    for name, given_language in ((src_lang_key, src_lang), ("trg_lang", trg_lang)):
        for row in filter(None, written.rows if given_language else ()):  # the row of a broken line stays empty
            row[name] = given_language
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
    groups = [group_of(number - 1, task, given_texts) for number, task, given_texts in numbered]
    metrics = kept("metrics", JudgeMetrics)
    given = read_assignments(judge_options, "judge option") or {}
    open_judge = _opener(groups, metrics, given=given, **options)
    types = verdict_types() if score_key == SCORES else {score_key: verdict_types()[SCORES]}
    with result_sink(out, written, types, lambda _: show_verdicts(groups, columns)) as write:
        columns = judged(lambda: kept("judge", open_judge), groups, batch_rows, metrics, earlier)
        new = columns if score_key == SCORES else {score_key: columns[SCORES]}
        write(new if written is records else with_empty_rows(new, usable.numbers, len(written.rows)))


def _source_and_candidates(line: str) -> dict[str, Any]:
    source, *candidates = line.split("\t")
    if not candidates:
        raise ValueError("holds no candidate; separate source and candidates by tabs")
    return {"src_text": source, "mt_texts": candidates}


def _languages(records: Records, name: str, given: str | None, of_answers: bool) -> list[str]:
    from grrm.cli.records import languages

    return [""] * len(records.rows) if of_answers and given is None else languages(records, name, given)


def _opener(
    groups: Sequence[Group],
    metrics: JudgeMetrics,
    judge: str,
    metric: str,
    scorer_env: Path | None,
    given: dict[str, Any],
    **options: Any,
) -> Callable[[], Judge]:
    """What opens the judge that the options name. Raises UserError for what can be refused before that."""
    if judge == "answer" or ":" in judge:
        from grrm.judges.building import build_judge

        refuse_given((*OF_MODELS, *OF_JUDGES), f"with --judge {judge}, whose options are given by --judge-option")
        return lambda: build_judge(judge, given)
    for flag in OF_JUDGES:
        name = OPTION_OF.get(flag, flag)
        if name in given:
            refuse_given((flag,), f"beside --judge-option {name}")
    if judge in WITH_METRIC:
        from grrm.judges.building import build_judge

        others = [name for name in OF_JUDGES if name != "metric"]
        refuse_given((*OF_MODELS, *others), f"with --judge {judge}, which has no model")
        return lambda: build_judge(judge, {"metric": metric, **given})
    refuse_given(("metric",), f"with --judge {judge}")
    if judge in LEARNED_METRICS:
        others = [name for name in OF_MODELS if name not in ("model", "deadline")]
        refuse_given((*others, *OF_REPLIES, *OF_GROUPS, *OF_REWARD_MODELS, *OF_VERIFIERS), f"with --judge {judge}")
        return metric_opener(judge, scorer_env, given, options["model"], options["deadline"])
    refuse_given(("scorer_env",), f"with --judge {judge}")
    if judge in REWARD_MODELS:
        refuse_given((*OF_REPLIES, *OF_GROUPS, *OF_VERIFIERS), f"with --judge {judge}, which generates nothing")
        return _reward_model_opener(groups, metrics, judge, given, **options)
    from grrm.inference.rank import build_generative_judge, check_rank_settings

    refuse_given(OF_REWARD_MODELS, f"with --judge {judge}")
    for name in OF_REWARD_MODELS:
        del options[name]
    model, chat_template = take_model_options(options), options.pop("chat_template")
    settings = _settings(judge, given, **options)
    check_rank_settings(settings, groups)
    return lambda: build_generative_judge(model.open(chat_template, marks_unanswered=True), settings, metrics)


def _reward_model_opener(
    groups: Sequence[Group],
    metrics: JudgeMetrics,
    judge: str,
    given: dict[str, Any],
    mt_prompt_type: str | None,
    any_language_pair: bool,
    **options: Any,
) -> Callable[[], Judge]:
    from grrm.gqm.mt_prompts import mt_prompt
    from grrm.judges.options import RewardModelOptions, read_options

    check_reward_model_options(given_model_options(), NAMES)
    flags = {"prompt_type": mt_prompt_type, "any_language_pair": any_language_pair}
    settings = read_options(RewardModelOptions, {**flags, **given})
    for group in groups:  # a language that the prompt cannot name is told before a model is loaded
        mt_prompt("", group.task.src_lang, group.task.trg_lang, settings.prompt_type or "Tower")
    template_given = is_given("--chat-template")

    def open_judge() -> Judge:
        from grrm.inference.reward_scoring import open_reward_judge

        template = options["chat_template"] if template_given else None
        opening = {"chat_template": template, "dtype": options["dtype"], "metrics": metrics}
        opened = open_reward_judge(options["model"], judge, settings, **opening)
        opened.warns = False  # the summary says it
        return opened

    return open_judge


def _settings(judge: str, given: dict[str, Any], prompt_length: int | None, retry: int, **options: Any) -> RankSettings:
    from grrm.inference.rank import RankSettings

    unused = OF_GROUPS if judge in ("sqm", "pairwise", *OF_ANSWERS) else ()
    refuse_given(unused, f"with --judge {judge}, which sees one candidate at a time")
    if judge not in VERIFIERS:
        refuse_given(OF_VERIFIERS, f"with --judge {judge}")
        unused = (*unused, *OF_VERIFIERS)
    options = {name: value for name, value in options.items() if name not in unused}
    values = {**options, "retries": retry, **given}
    return RankSettings(judge, values.pop("prompt_length", prompt_length), values)
