"""Both stages of a judge of one translation, SQM or rubric: one row per candidate of annotated groups."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from grrm.data.atomic import atomic_path
from grrm.data.convert import ConversionReport
from grrm.data.converters.groups import integer_scores, shown_segments
from grrm.data.converters.intake import (
    TASK,
    Intake,
    Kind,
    add_keys,
    escape,
    read_usable,
    unsafe_reason,
    with_contexts,
    without_unsafe,
)
from grrm.data.converters.output import (
    DEFAULT_SEED,
    JUDGE_RL_SCHEMA,
    SFT_SCHEMA,
    Order,
    conversation,
    shuffled_order,
    taught,
    write_in_order,
)
from grrm.data.documents import Context
from grrm.data.parquet import check_parquet
from grrm.errors import UserError
from grrm.gqm.chat import CONTROL_TOKENS
from grrm.gqm.context import single_prompt, with_shown_context
from grrm.gqm.fences import UNFENCED, UnsafeReason
from grrm.gqm.groups import TranslationTask
from grrm.gqm.mt_prompts import mt_prompt
from grrm.gqm.prompts import Span
from grrm.gqm.rubric import imitates_rubric, rubric_prompt


@dataclass(frozen=True, slots=True)
class SingleJudge:
    """A judge of one translation: its prompt, its reply, the data source and the truth for its reward.

    `prompt` takes the task and a translation; `reply` and `truth` take a whole score. Left out are rows for which
    `unsafe`, which takes the task and all translations, has a reason, and with `needs_reference` those without one.
    """

    data_source: str
    prompt: Callable[[TranslationTask, str], str]
    reply: Callable[[int], str]
    truth: Callable[[int], str]
    unsafe: Callable[[TranslationTask, Sequence[str]], UnsafeReason | None]
    needs_reference: bool = False


def _sqm_prompt(task: TranslationTask, text: str) -> str:
    return single_prompt(with_shown_context(task, shown_segments(task.context), escape), escape(text))


SQM = SingleJudge(
    "single_score",
    _sqm_prompt,
    str,
    lambda score: json.dumps({"A": score}),
    lambda task, texts: unsafe_reason([task.source, *texts]),
)
CRITERIA = "10 points for a translation that says all that the text says and nothing else, 0 points for any other text."
REFERENCE = "{reference}"


def rubric_judge(criteria: str = CRITERIA) -> SingleJudge:
    """A rubric judge of translations: the task is the question, and the true grade is a tenth of the score.

    `{reference}` in the criteria stands for the reference of each row. Raises UserError for criteria that are blank or
    hold a control token of the chat template.
    """
    _check_criteria(criteria)

    def prompt(task: TranslationTask, text: str) -> str:
        return rubric_prompt(*map(UNFENCED.escape, (*question_and_criteria(task, criteria), text)))

    def unsafe(task: TranslationTask, texts: Sequence[str]) -> UnsafeReason | None:
        if any(map(imitates_rubric, texts)):
            return UnsafeReason.PROTOCOL_LINE
        return next(filter(None, map(UNFENCED.unsafe_reason, (*question_and_criteria(task, criteria), *texts))), None)

    return SingleJudge(
        "grade",
        prompt,
        lambda score: f"Total Score: {score}/10",
        lambda score: f"{score / 10:g}",
        unsafe,
        needs_reference=REFERENCE in criteria,
    )


def _check_criteria(criteria: str) -> None:
    if not criteria.strip():
        raise UserError("the criteria are empty; say in a sentence what the points are for")
    for token in CONTROL_TOKENS:
        if token in criteria:
            raise UserError(f"the criteria hold {token}, a control token of the chat template; leave it out")


def question_and_criteria(task: TranslationTask, criteria: str = CRITERIA) -> tuple[str, str]:
    """The question to a rubric judge about translations of a task, and the criteria."""
    question = mt_prompt(task.source, task.src_lang, task.trg_lang, "Tower")
    return question, criteria.replace(REFERENCE, task.reference or "")


def convert_sft_sqm(
    parquet: Path,
    out: Path,
    *,
    mt_key: str = "mt_texts",
    score_key: str = "scores",
    analyses_key: str | None = "analyses",
    context_segments: int = 0,
    seed: int = DEFAULT_SEED,
    judge: SingleJudge = SQM,
) -> ConversionReport:
    """Write `messages` for every candidate: the single prompt as user, its analysis and its score as assistant.

    `analyses_key` names a list of one analysis per candidate; None leaves them out. Scores lose their decimals. The
    rows are shuffled. SQM's prompt shows `context_segments` of each row's document. Raises UserError as `read_usable`
    and `with_contexts` do, and when two keys name the same column.
    """
    intake, contexts = _shown_rows(parquet, mt_key, score_key, analyses_key, context_segments, judge)
    candidates = _candidates(intake.table, mt_key, score_key, contexts)
    analyses = None if analyses_key is None else intake.table[analyses_key].combine_chunks().flatten().to_pylist()

    def response(at: int) -> tuple[str, list[Span]]:
        """The text, and where in it the score is."""
        before = "" if analyses is None else f"{analyses[at].strip()}\n\n"
        score = candidates[at][2]
        reply = judge.reply(score)
        start = len(before) + reply.index(str(score))
        return before + reply, [(start, start + len(str(score)))]

    def build(chosen: Order) -> pa.Table:
        responses, decisive = zip(*map(response, chosen.tolist()), strict=True)
        return taught([judge.prompt(*candidates[at][:2]) for at in chosen.tolist()], responses, decisive)

    return write_in_order(out, SFT_SCHEMA, shuffled_order(len(candidates), seed), build, intake.rejected)


def convert_rl_sqm(
    parquet: Path,
    out: Path,
    *,
    mt_key: str = "mt_texts",
    score_key: str = "scores",
    context_segments: int = 0,
    seed: int = DEFAULT_SEED,
    judge: SingleJudge = SQM,
) -> ConversionReport:
    """Write the prompt and the truth of every candidate: `{"A": 7}`, for the rule reward `single_score`, by default.

    Raises UserError as `convert_sft_sqm`.
    """
    intake, contexts = _shown_rows(parquet, mt_key, score_key, None, context_segments, judge)
    candidates = _candidates(intake.table, mt_key, score_key, contexts)

    def build(chosen: Order) -> pa.Table:
        rows = [
            {
                "data_source": judge.data_source,
                "prompt": conversation(judge.prompt(task, text)),
                "ability": "ranking",
                "reward_model": {"ground_truth": judge.truth(score)},
            }
            for task, text, score in (candidates[at] for at in chosen.tolist())
        ]
        return pa.Table.from_pylist(rows, JUDGE_RL_SCHEMA)

    return write_in_order(out, JUDGE_RL_SCHEMA, shuffled_order(len(candidates), seed), build, intake.rejected)


def convert_rubric_questions(
    parquet: Path,
    out: Path,
    criteria: str = CRITERIA,
    *,
    mt_key: str = "mt_texts",
    score_key: str = "scores",
) -> ConversionReport:
    """Write groups with the question in `src_text` and the criteria in `trg_text`, as a rubric judge is asked.

    OUT is a parquet file; languages, candidates and scores are kept under their names. Raises UserError as
    `convert_sft_sqm` and `rubric_judge`, and for an `out` that is not .parquet.
    """
    check_parquet(out, "groups")
    intake = _read(parquet, mt_key, score_key, None, rubric_judge(criteria).needs_reference)
    pairs = [question_and_criteria(task, criteria) for task in _tasks(intake.table)]
    shown = {"src_text": [question for question, _ in pairs], "trg_text": [row_criteria for _, row_criteria in pairs]}
    copied = {name: intake.table[name] for name in ("src_lang", "trg_lang", mt_key, score_key)}
    with atomic_path(out) as temporary:
        pq.write_table(pa.table(shown | copied), temporary)
    return ConversionReport(out, len(pairs), intake.rejected)


def _shown_rows(
    parquet: Path, mt_key: str, score_key: str, analyses_key: str | None, context_segments: int, judge: SingleJudge
) -> tuple[Intake, list[Context | None]]:
    """The rows that the judge is shown, and their contexts."""
    intake = _read(parquet, mt_key, score_key, analyses_key, judge.needs_reference)
    reasons = map(judge.unsafe, _tasks(intake.table), intake.table[mt_key].to_pylist())
    return with_contexts(without_unsafe(intake, parquet, reasons), parquet, context_segments)


def _read(parquet: Path, mt_key: str, score_key: str, analyses_key: str | None, needs_reference: bool) -> Intake:
    lists: list[tuple[str, Kind]] = [(mt_key, "texts"), (score_key, "numbers")]
    lists += [] if analyses_key is None else [(analyses_key, "texts")]
    kinds = add_keys({**TASK, "trg_text": "text" if needs_reference else "reference"}, *lists)
    names = [name for name, _ in lists]

    def faults(batch: pa.Table) -> Iterator[str | None]:
        lengths = [pc.list_value_length(batch[name]).to_pylist() for name in names]
        for scores, *counts in zip(batch[score_key].to_pylist(), *lengths, strict=True):
            yield _fault(scores, counts, names)

    return read_usable(parquet, kinds, faults)


def _fault(scores: list[float | None] | None, counts: list[int | None], names: list[str]) -> str | None:
    if scores is None or None in counts:
        return None  # reported already
    if not any(counts):
        return "no candidates"
    if len(set(counts)) > 1:
        return "different lengths of " + ", ".join(f"{name} ({n})" for name, n in zip(names, counts, strict=True))
    if not all(score is None or -1 < score < 11 for score in scores):
        return "a score is not from 0 to 10"
    return None


def _candidates(
    table: pa.Table, mt_key: str, score_key: str, contexts: Sequence[Context | None]
) -> list[tuple[TranslationTask, str, int]]:
    """Task, text and whole score of all candidates, counted through the rows."""
    tasks = (replace(task, context=context) for task, context in zip(_tasks(table), contexts, strict=True))
    columns = zip(tasks, table[mt_key].to_pylist(), table[score_key].to_pylist(), strict=True)
    return [
        (task, text, score)
        for task, texts, scores in columns
        for text, score in zip(texts, integer_scores(scores), strict=True)
    ]


def _tasks(table: pa.Table) -> list[TranslationTask]:
    columns = (table[name].to_pylist() for name in (*TASK, "trg_text"))
    return [TranslationTask(*row) for row in zip(*columns, strict=True)]
