"""The judge that the settings name, ready to be served."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from grrm.errors import UserError
from grrm.gqm.groups import TranslationTask
from grrm.gqm.languages import display_name
from grrm.judges.building import EMBEDDED_JUDGES, REWARD_MODEL_JUDGES, build_from_options, build_judge, options_of
from grrm.judges.deadline import Deadline, TimedGenerator
from grrm.judges.interface import Judge, TextGenerator
from grrm.judges.metrics import JudgeMetrics

from .model import check_model_settings, model_name, open_model, open_reward_model
from .settings import Settings


def _any_task(task: TranslationTask) -> None:
    """Accepts every task: for judges without a prompt."""


@dataclass(frozen=True, slots=True)
class HostedJudge:
    """A judge and the model behind it, as the server needs them; the defaults are those of a judge without a model.

    `answers` asks the model for one token, or is None where the judge itself is cheap to ask. `when_idle(act)` calls
    `act` once the model is free for the next call. `check_task` raises UserError for a task that no prompt can be made
    of. Each call of the judge has `deadline_s` seconds on `deadline`.
    """

    judge: Judge
    model: str | None = None
    counters: JudgeMetrics | None = None
    deadline: Deadline = field(default_factory=Deadline)
    deadline_s: float = math.inf
    answers: Callable[[], bool] | None = None
    when_idle: Callable[[Callable[[], None]], None] = lambda act: act()
    check_task: Callable[[TranslationTask], None] = _any_task


def build_hosted_judge(settings: Settings) -> HostedJudge:
    """The judge, its model opened.

    Raises UserError for settings that do not go together, and for a model or an option that cannot be used, where
    possible before weights are loaded.
    """
    check_model_settings(settings)
    if settings.judge in EMBEDDED_JUDGES:
        return HostedJudge(build_judge(settings.judge, settings.judge_options))
    if settings.judge in REWARD_MODEL_JUDGES:
        counters = JudgeMetrics()
        return HostedJudge(
            open_reward_model(settings, counters),
            model=model_name(settings),
            counters=counters,
            check_task=_check_languages,
        )
    options_of(settings.judge, settings.judge_options)  # refuses mistakes in them before the model is opened
    deadline, counters = Deadline(), JudgeMetrics()
    opened, generator = open_model(settings, deadline)
    if "prompt_length" in settings.judge_options and not opened.counts_tokens:
        raise UserError(
            "judge option 'prompt_length' counts tokens, which needs the folder of the tokenizer: set tokenizer, or "
            "leave the option out"
        )
    options = options_of(settings.judge, settings.judge_options, opened.max_prompt_tokens or sys.maxsize)
    judge = build_from_options(
        generator, options, render=opened.render, special_tokens=opened.special_tokens, metrics=counters
    )
    return HostedJudge(
        judge,
        model=model_name(settings),
        counters=counters,
        deadline=deadline,
        deadline_s=settings.judge_deadline_s,
        answers=lambda: _answers(generator, opened.render),
        when_idle=generator.when_idle if isinstance(generator, TimedGenerator) else lambda act: act(),
        check_task=_check_languages,
    )


def _answers(generator: TextGenerator, render: Callable[[str], str]) -> bool:
    (reply,) = generator.generate_text([render("Good morning")], temperature=0.0, max_new_tokens=1, seeds=[0])
    return reply.finish_reason in ("stop", "length")


def _check_languages(task: TranslationTask) -> None:
    for language in (task.src_lang, task.trg_lang):
        if not language.strip():
            raise UserError("the languages are not told, and the judge's prompt names them: send src_lang and trg_lang")
        display_name(language)
