"""Ranking and scoring the translations of each source against each other with a judge."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from grrm.engine.api import Engine
from grrm.engine.open import OpenedGenerator
from grrm.errors import UserError
from grrm.gqm.grammar import Mode
from grrm.gqm.groups import Candidate, Group, TranslationTask, Verdict
from grrm.gqm.languages import display_name
from grrm.inference.batch_calls import BATCH_ROWS, Progress, batches, generator_for, one_per_row
from grrm.inference.rank_arguments import (
    check_judge,
    check_options,
    check_texts,
    generates_text,
    not_at_default,
    references_per_row,
    refuse_unread,
)
from grrm.judges.building import (
    ANSWER_JUDGES,
    DEFAULT_GQM,
    GENERATIVE_JUDGES,
    build_from_options,
    build_judge,
    needs_no_model,
    options_of,
)
from grrm.judges.interface import Judge
from grrm.judges.metrics import JudgeMetrics
from grrm.judges.options import GenerativeOptions, GQMOptions, RewardModelOptions, read_options


class RankResult(TypedDict):
    """One entry per source in every list.

    `scores`: a number from 0 to 10 or None per candidate, in the order they were given; None for the whole list where
    no candidate has a score. `responses`: the judge's last reply, empty where it was not asked. `statuses`: why each
    candidate does or does not carry a score. `rankings`: positions in tiers, best first, or None. `attempts`: replies
    drawn. `rejections`: why each reply that could not be read was rejected.
    """

    scores: list[list[float | None] | None]
    responses: list[str]
    statuses: list[list[str]]
    rankings: list[list[list[int]] | None]
    attempts: list[int]
    rejections: list[list[str]]


@dataclass(frozen=True, slots=True)
class RankSettings:
    """How the judge is asked.

    `judge` is "gqm" (all candidates in one prompt), or another generative judge (each by itself); `options` are values
    of its options by name. `prompt_length` is the longest judge prompt in tokens, None as long as the model allows.
    """

    judge: str = "gqm"
    prompt_length: int | None = None
    options: Mapping[str, object] = field(default_factory=dict)

    def read(self, longest_prompt: int = sys.maxsize) -> GenerativeOptions:
        """The judge's options for a model that takes prompts of this length. Raises UserError as `options_of`."""
        limit = {} if self.prompt_length is None else {"prompt_length": self.prompt_length}
        return options_of(self.judge, {**self.options, **limit}, longest_prompt)


def rank(
    model_path: str | Path | None,
    src_list: Sequence[str],
    mt_list: Sequence[Sequence[str | None]],
    src_langs: str | Sequence[str],
    trg_langs: str | Sequence[str],
    temperature: float = 1.0,
    top_p: float = 1.0,
    max_new_tokens: int = 4096,
    retry: int = 6,
    prompt_type: str = "ranking_score",
    add_example: bool = False,
    model: Engine | None = None,
    tokenizer: Any = None,
    *,
    judge: str = "gqm",
    references: Sequence[str] | None = None,
    chat_template: str | None = None,
    prompt_length: int | None = None,
    mode: Mode = "tolerant",
    shuffle: bool = False,
    permutations: int = 1,
    seed: int = 0,
    batch_rows: int = BATCH_ROWS,
    progress: Progress | None = None,
    judge_options: Mapping[str, object] | None = None,
    **opening: Any,
) -> RankResult:
    """Rank and score the candidates of every source, in the order given.

    The positional arguments are those of GRRM's inference tool. `model_path` is a checkpoint folder, or with
    `urls=[…]` the model's name on OpenAI-compatible servers (None: the first they have); further `opening` settings
    are `open_generator`'s. `model` and `tokenizer` replace opening one. Replies that cannot be read are drawn again up
    to `retry` times at temperature 1. `permutations` orders of the candidates, the first shuffled with `shuffle`, are
    averaged against position bias. Equal candidates are judged once; a candidate of None has no translation.
    The judges "rubric" and "verifier" need `references`: the scoring criteria, or the true answer, of every source.
    The judges "ranker" and "rm" are a reward model in the folder `model_path`; "consensus", "text_metric" (with
    `references`) and functions of your own (`module:function`) need no model. They generate no text and read none of
    the settings for that. `judge_options` are further options of the judge, by the reward server's names; one that is
    an argument too is given once. `chat_template` None is chatml, for a reward model what its folder records.
    Same arguments, same result, whatever `batch_rows`, for reward models up to rounding. Recommended for evaluation:
    temperature 0, max_new_tokens 8192. Raises ValueError for lists of different lengths and UserError for other wrong
    arguments and as `open_generator` and the judge do.
    """
    given = not_at_default(rank, locals())
    further = check_options(judge_options, given)
    check_judge(judge)
    n_rows = len(src_list)
    if len(mt_list) != n_rows:
        raise ValueError(f"{len(mt_list)} lists of candidates for {n_rows} sources")
    languages = zip(one_per_row(src_langs, n_rows), one_per_row(trg_langs, n_rows), strict=True)
    if not generates_text(judge):
        refuse_unread(judge, [*(name for name in given if name != "opening"), *opening])
    check_texts(src_list, mt_list)
    groups = [
        group_of(row, TranslationTask(source, *pair, reference), texts)
        for row, (source, texts, pair, reference) in enumerate(
            zip(src_list, mt_list, languages, references_per_row(judge, references, n_rows), strict=True)
        )
    ]
    if not generates_text(judge):
        other = _judge_that_generates_nothing(judge, model_path, further, chat_template=chat_template, **opening)
        return result_of(judge_in_batches(other, groups, batch_rows, progress))
    options: dict[str, object] = {
        "temperature": temperature,
        "top_p": top_p,
        "max_new_tokens": max_new_tokens,
        "retries": retry,
        "seed": seed,
        "mode": mode,
    }
    of_groups = {
        "prompt_type": prompt_type,
        "add_example": add_example,
        "shuffle": shuffle,
        "permutations": permutations,
    }
    # Judges of one candidate have none of these options: one that is not at its default is passed on, to be refused.
    changed = {name: value for name, value in of_groups.items() if value != getattr(DEFAULT_GQM, name)}
    options |= of_groups if GENERATIVE_JUDGES[judge] is GQMOptions else changed
    settings = RankSettings(judge, further.pop("prompt_length", prompt_length), {**options, **further})
    check_rank_settings(settings, groups)
    opened = generator_for(model_path, model, tokenizer, chat_template or "chatml", opening)
    return result_of(rank_groups(opened, groups, settings, batch_rows=batch_rows, progress=progress))


def _judge_that_generates_nothing(
    judge: str, folder: str | Path | None, options: Mapping[str, object], **opening: Any
) -> Judge:
    """A reward model in a folder, or a judge without model. Raises UserError for a wrong folder or option."""
    if needs_no_model(judge):
        if folder is not None:
            raise UserError(f"judge {judge!r} has no model: leave out model_path")
        return build_judge(judge, options)
    if folder is None:
        raise UserError(f"judge {judge!r} is a reward model: give its folder as model_path")
    from grrm.inference.reward_scoring import open_reward_judge

    return open_reward_judge(folder, judge, read_options(RewardModelOptions, options), **opening)


def group_of(row: int, task: TranslationTask, texts: Sequence[str | None]) -> Group:
    """The group of one source; candidates are called by their positions."""
    candidates = tuple(Candidate(str(i), text or "", text) for i, text in enumerate(texts))
    return Group(str(row), task, candidates)


def check_rank_settings(settings: RankSettings, groups: Sequence[Group]) -> None:
    """Raises UserError for what a generative judge would refuse, before a model is loaded for it."""
    settings.read()
    for group in () if settings.judge in ANSWER_JUDGES else groups:
        display_name(group.task.src_lang), display_name(group.task.trg_lang)


def rank_groups(
    opened: OpenedGenerator,
    groups: Sequence[Group],
    settings: RankSettings,
    *,
    batch_rows: int = BATCH_ROWS,
    progress: Progress | None = None,
) -> list[Verdict]:
    """One verdict per group, order kept. Raises UserError as the judge and the generator do."""
    return judge_in_batches(build_generative_judge(opened, settings), groups, batch_rows, progress)


def judge_in_batches(
    judge: Judge, groups: Sequence[Group], batch_rows: int = BATCH_ROWS, progress: Progress | None = None
) -> list[Verdict]:
    """One verdict per group, order kept, from any judge. Raises what the judge raises."""
    verdicts: list[Verdict] = []
    for rows in batches(len(groups), batch_rows, progress):
        verdicts += judge.judge([groups[row] for row in rows])
    return verdicts


def build_generative_judge(
    opened: OpenedGenerator, settings: RankSettings, metrics: JudgeMetrics | None = None
) -> Judge:
    """The judge on an opened generator, counting in `metrics`.

    Raises UserError for a limit in tokens where nothing counts them.
    """
    if settings.prompt_length is not None and not opened.counts_tokens:
        raise UserError("a limit on the prompt's tokens needs the folder of the tokenizer: name it, or set no limit")
    options = settings.read(opened.max_prompt_tokens or sys.maxsize)
    return build_from_options(
        opened.generator, options, render=opened.render, special_tokens=opened.special_tokens, metrics=metrics
    )


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
    return [int(score) if score is not None and score.is_integer() else score for score in verdict.scores]
