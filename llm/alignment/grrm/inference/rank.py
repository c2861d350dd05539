"""Ranking and scoring the translations of each source against each other with a judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

from grrm.engine.openai_wire import served_model
from grrm.engine.options import SERVER_WAIT_S
from grrm.errors import UserError
from grrm.gqm.groups import Candidate, ContextSegment, Group, TranslationTask, Verdict
from grrm.inference.batch_calls import (
    BATCH_ROWS,
    Progress,
    batches,
    check_list,
    check_sources,
    generator_for,
    is_list,
    language_per_row,
)
from grrm.inference.reward_scoring import open_reward_judge
from grrm.judges.interface import Judge
from grrm.judges.registry import check_judge_name, judge_names, spec_of
from grrm.judges.spec import SPECS, JudgeSpec, Needs, Process
from grrm.models.trained_with import checkpoint_template

# The options of generative judges of translations in GRRM's inference tool, where they differ from the judges' own.
TOOL_OPTIONS: Mapping[str, object] = {"temperature": 1.0, "max_new_tokens": 4096, "retries": 6}
METRIC_SECONDS = 7200.0  # of a learned metric, for all texts
_OPTION_OF = {"retry": "retries"}  # the name of the option where that tool has another one
# What opening the model of a judge takes beside `model_path`; a generator takes all that `generator_for` does.
_OPENING: Mapping[Needs, tuple[str, ...]] = {
    "nothing": (),
    "reward model": ("chat_template", "dtype"),
    "metric": ("deadline_s",),
}


class RankResult(TypedDict):
    """One entry per source in every list.

    scores: a number from 0 to 10 or None per candidate, in their order; None for a source without any score.
    responses: the judge's last reply, empty if it was not asked.
    statuses: the reason that each candidate does or does not carry a score.
    rankings: positions in tiers, best first, or None.
    attempts: number of replies.
    rejections: reasons of the replies that could not be read.
    """

    scores: list[list[float | None] | None]
    responses: list[str]
    statuses: list[list[str]]
    rankings: list[list[list[int]] | None]
    attempts: list[int]
    rejections: list[list[str]]


def rank(
    model_path: str | Path | None,
    src_list: Sequence[str],
    mt_list: Sequence[Sequence[str | None]],
    src_langs: str | Sequence[str],
    trg_langs: str | Sequence[str],
    *,
    judge: str = "gqm",
    references: Sequence[str] | None = None,
    contexts: Sequence[Sequence[tuple[str, str | None]]] | None = None,
    **settings: Any,
) -> RankResult:
    """Rank and score the candidates of every source, order kept.

    Equal candidates are judged once; a candidate of None has no translation. Same arguments, same result, whatever
    `batch_rows`, for reward models up to rounding. Recommended for evaluation: temperature 0, max_new_tokens 8192.

    Args:
        model_path: a checkpoint folder, or with `urls=[...]` the model's name on OpenAI-compatible servers (None: the
            first they have); the folder of a reward model; the model of a learned metric; None for judges without.
        src_list: the sources.
        mt_list: the candidates of every source.
        src_langs: their language, or a list of one each.
        trg_langs: the language of the candidates, or a list of one each.
        judge: a judge of the registry, or a function of your own, `module:function`.
        references: a translation, the true answer or the scoring criteria for every source, if the judge reads it.
        contexts: the segments before every source in its document, nearest last, each with its translation or None,
            for a judge that shows context.
        settings: `batch_rows`, `progress(done, total)`, options of the judge (by name or together as `judge_options`),
            settings of `open_generator`, such as `chat_template` (None: the folder's, else chatml) and
            `dtype`, or `model` and `tokenizer` for an open engine. Defaults of generative judges are those of GRRM's
            inference tool.

    Raises:
        ValueError: for lists of different lengths.
        UserError: for other wrong arguments, and as `open_generator` and the judge do.
    """
    if not isinstance(judge, str):
        raise UserError(f"judge is {judge!r}; give the name of one, such as 'gqm'")
    check_judge_name(judge)
    check_sources(src_list)
    check_list("mt_list", mt_list)
    spec, n_rows = spec_of(judge), len(src_list)
    if len(mt_list) != n_rows:
        raise ValueError(f"{len(mt_list)} lists of candidates for {n_rows} sources")
    languages = zip(language_per_row(src_langs, n_rows), language_per_row(trg_langs, n_rows), strict=True)
    settings = {name: value for name, value in settings.items() if value is not None}
    batch_rows, progress = settings.pop("batch_rows", BATCH_ROWS), settings.pop("progress", None)
    options = spec.read(_take_options(spec, settings))
    _check_opening(spec, model_path, settings)
    check_texts(mt_list)
    per_row = references_per_row(spec, references, n_rows), contexts_per_row(contexts, n_rows)
    groups = [
        group_of(row, TranslationTask(source, *pair, reference, context=context), texts)
        for row, (source, texts, pair, reference, context) in enumerate(
            zip(src_list, mt_list, languages, *per_row, strict=True)
        )
    ]
    for group in groups:
        options.check_task(group.task)
    opened = options.open(_process(spec, model_path, settings))
    return result_of(judge_in_batches(opened, groups, batch_rows, progress))


def _take_options(spec: JudgeSpec, settings: dict[str, Any]) -> dict[str, object]:
    """Take the judge's options out of the settings. Raises UserError for one that is given twice."""
    together = settings.pop("judge_options", {})
    if not isinstance(together, Mapping) or not all(isinstance(name, str) for name in together):
        raise UserError(f"judge_options is {together!r}; give options by name, such as {{'show_copies': True}}")
    options_read = {*spec.options.model_fields}
    if spec.needs == "generator":  # an option of another such judge is refused as one
        options_read |= {name for judge in judge_names(["generator"]) for name in SPECS[judge].options.model_fields}
    for name, option in _OPTION_OF.items():
        if name in settings and option in settings:
            raise UserError(f"{name} and {option} are one option; leave out one of the two")
    names = {name: _OPTION_OF.get(name, name) for name in settings}
    options = {option: settings.pop(name) for name, option in names.items() if option in options_read}
    for name in together:
        if name in options:
            raise UserError(f"{name} is given as an argument and among judge_options; leave out one of the two")
    of_tool = spec.needs == "generator" and not spec.of_answers
    return {**(TOOL_OPTIONS if of_tool else {}), **options, **together}


def _check_opening(spec: JudgeSpec, model_path: str | Path | None, settings: Mapping[str, Any]) -> None:
    """Raise UserError for settings that the judge does not read, and for a model that it has not or lacks."""
    if spec.needs == "generator":
        return
    unread = [name for name in settings if name not in _OPENING[spec.needs]]
    if unread:
        options = ", ".join(spec.options.model_fields)
        listed = f"; its options are {options}" if options else ""
        sentence = f"judge {spec.name!r} generates no text and does not read {', '.join(unread)}: leave it out{listed}"
        raise UserError(sentence)
    if spec.needs == "nothing" and model_path is not None:
        raise UserError(f"judge {spec.name!r} has no model: leave out model_path")
    if spec.needs == "reward model" and model_path is None:
        raise UserError(f"judge {spec.name!r} is a reward model: give its folder as model_path")


def _process(spec: JudgeSpec, model_path: str | Path | None, settings: dict[str, Any]) -> Process:
    urls, seconds = settings.get("urls", ()), min(settings.get("deadline_s", SERVER_WAIT_S), SERVER_WAIT_S)
    if spec.needs == "generator" and model_path is not None and not urls:
        settings = settings | {"chat_template": checkpoint_template(str(model_path), settings.get("chat_template"))}
    return Process(
        spec.name,
        generator=lambda: generator_for(model_path, **settings),
        served_model=lambda: served_model(urls, seconds, settings.get("token")) if urls else None,
        reward_model=partial(open_reward_judge, str(model_path), **settings),
        model=None if model_path is None else str(model_path),
        seconds=settings.get("deadline_s", METRIC_SECONDS),
    )


def group_of(row: int, task: TranslationTask, texts: Sequence[str | None]) -> Group:
    """The group of one source; candidates are called by their positions."""
    candidates = tuple(Candidate(str(i), text or "", text) for i, text in enumerate(texts))
    return Group(str(row), task, candidates)


def check_texts(candidates: Sequence[Any]) -> None:
    """Raises UserError that names the first row whose candidates are no list of texts."""
    for row, texts in enumerate(candidates):
        if not is_list(texts):
            raise UserError(f"mt_list[{row}] is {texts!r}; give a list of texts, the candidates of source {row}")
        for text in texts:
            if not (text is None or isinstance(text, str)):
                raise UserError(f"mt_list[{row}] holds {text!r}; give texts, and None for a missing candidate")


def references_per_row(spec: JudgeSpec, references: Sequence[str] | None, n_rows: int) -> Sequence[str | None]:
    """One per row.

    Raises UserError where the judge lacks them, would not read them, or they are no texts; ValueError for another
    number of them.
    """
    needed = spec.reference == "needed"
    if spec.reference != "optional" and needed != (references is not None):
        reads = "needs `references`, true translations or answers, or criteria" if needed else "reads no references"
        raise UserError(f"judge {spec.name!r} {reads}: {'give' if references is None else 'leave out'} the argument")
    if references is None:
        return [None] * n_rows
    check_list("references", references)
    if len(references) != n_rows:
        raise ValueError(f"{len(references)} references for {n_rows} sources")
    for row, reference in enumerate(references):
        if not isinstance(reference, str):
            raise UserError(f"references[{row}] is {reference!r}; give text")
    return references


def contexts_per_row(
    contexts: Sequence[Sequence[tuple[str, str | None]]] | None, n_rows: int
) -> Sequence[tuple[ContextSegment, ...] | None]:
    """One per row, None where there are none. Raises ValueError for another number of them, UserError for no texts."""
    if contexts is None:
        return [None] * n_rows
    check_list("contexts", contexts)
    if len(contexts) != n_rows:
        raise ValueError(f"{len(contexts)} contexts for {n_rows} sources")
    for row, segments in enumerate(contexts):
        if not is_list(segments):
            raise UserError(f"contexts[{row}] is {segments!r}; give a list of pairs, [] where none comes before")
        for segment in segments:
            is_pair = isinstance(segment, tuple | list) and len(segment) == 2
            if not (is_pair and isinstance(segment[0], str) and isinstance(segment[1], str | None)):
                raise UserError(f"contexts[{row}] holds {segment!r}; give pairs of source and translation")
    return [tuple(ContextSegment(*segment) for segment in segments) for segments in contexts]


def judge_in_batches(
    judge: Judge, groups: Sequence[Group], batch_rows: int = BATCH_ROWS, progress: Progress | None = None
) -> list[Verdict]:
    """One verdict per group, order kept, from any judge. Raises what the judge raises."""
    verdicts: list[Verdict] = []
    for rows in batches(len(groups), batch_rows, progress):
        verdicts += judge.judge([groups[row] for row in rows])
    return verdicts


def result_of(verdicts: Sequence[Verdict]) -> RankResult:
    """Verdicts of groups made by `group_of` as columns."""
    return RankResult(
        scores=[_scores(verdict) for verdict in verdicts],
        responses=[verdict.analysis for verdict in verdicts],
        statuses=[[status.value for status in verdict.statuses] for verdict in verdicts],
        rankings=[
            None if verdict.ranking is None else [[int(name) for name in tier] for tier in verdict.ranking]
            for verdict in verdicts
        ],
        attempts=[verdict.attempts for verdict in verdicts],
        rejections=[list(verdict.rejections) for verdict in verdicts],
    )


def _scores(verdict: Verdict) -> list[float | None] | None:
    if all(score is None for score in verdict.scores):
        return None
    return [int(score) if score is not None and score % 1 == 0 else score for score in verdict.scores]
