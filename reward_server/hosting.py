"""The judge that the settings name, ready to be served."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from grrm.engine.openai_wire import served_model
from grrm.engine.scheduler import BatchScheduler
from grrm.errors import UserError
from grrm.gqm.context import check_context
from grrm.gqm.groups import TranslationTask
from grrm.gqm.languages import display_name
from grrm.inference.judge_sources import WHICH_MODEL_S, open_mixture
from grrm.inference.reward_scoring import open_reward_judge
from grrm.judges.answer import AnswerJudge
from grrm.judges.deadline import Deadline, TimedCounts, TimedGenerator
from grrm.judges.gated import GatedJudge
from grrm.judges.generative import GenerativeOptions, first_prompts
from grrm.judges.interface import Judge, OpenedGenerator
from grrm.judges.learned_metric import LearnedMetricJudge
from grrm.judges.metrics import JudgeMetrics
from grrm.judges.mixture import Part
from grrm.judges.registry import spec_of
from grrm.judges.sources import MIXTURE, JudgeSource, mixture_sources
from grrm.judges.spec import JudgeOptions, JudgeSpec, Process
from grrm.judges.value_head import RewardModelJudge
from grrm.rewards.gates import read_gates

from .model import check_model_settings, judge_token, model_name, open_judge_model
from .settings import Settings

_TRANSLATION = "Good morning, Anna!"
# True answers for rules that refuse those that are no number, or no roles.
_TRUTHS = {"gsm8k": "1", "grade": "1", "knights_and_knaves": "Anna is a knight."}


@dataclass(frozen=True, slots=True)
class HostedJudge:
    """A judge and the model behind it, as the server needs them; the defaults are those of a judge without a model.

    `answers` asks the model for one token, or is None where the judge itself is cheap to ask. `when_idle(act)` calls
    `act` once the model is free for the next call. `check_task` raises UserError for a task that no prompt can be made
    of, `prompts_of` makes the prompts that the first questions about a group would be.

    With `compares_pairs` there is a prompt for every two candidates.
    Each call of the judge has `deadline_s` seconds on `deadline`. `languages` are a pair, and `reference` a translation
    or true answer, that the judge does not refuse. With `takes_turns` there is one call at a time; otherwise callers
    are let in as they come, and `scheduler` brings them together at the model.
    """

    judge: Judge
    model: str | None = None
    counters: JudgeMetrics | None = None
    deadline: Deadline = field(default_factory=Deadline)
    deadline_s: float = math.inf
    answers: Callable[[], bool] | None = None
    when_idle: Callable[[Callable[[], None]], None] = lambda act: act()
    check_task: Callable[[TranslationTask], None] = lambda task: None
    compares_pairs: bool = False
    prompts_of: Callable[..., list[str]] = lambda group, around=None: []
    scheduler: BatchScheduler | None = None
    languages: tuple[str, str] = ("de", "en")
    reference: str = _TRANSLATION
    title: str = ""

    @property
    def name(self) -> str:
        """The name of the judge in requests, probes and counters."""
        return self.title or self.judge.name

    def described(self) -> dict[str, object]:
        """The judge's entry in the answer to a probe."""
        described: dict[str, object] = {"name": self.name, "model": self.model}
        if self.counters is not None:
            described |= {"counters": self.counters.values(), "mean_agreement": self.counters.mean_agreement()}
        return described

    @property
    def takes_turns(self) -> bool:
        """True if the judge has one call at a time."""
        return self.scheduler is None

    def is_idle(self) -> bool:
        """True if the model is not at work."""
        if self.scheduler is not None:
            return self.scheduler.n_running == 0
        idle = threading.Event()
        self.when_idle(idle.set)
        return idle.is_set()


def build_hosted_judges(settings: Settings) -> list[HostedJudge]:
    """All judges of the settings, the default one first. Raises UserError as `build_hosted_judge` does."""
    named = settings.named_judges()
    for judge_settings in named.values():
        check_model_settings(judge_settings)  # of all, before the first is opened
    return [replace(build_hosted_judge(judge_settings), title=name) for name, judge_settings in named.items()]


def build_hosted_judge(settings: Settings) -> HostedJudge:
    """The judge behind the settings' gates, its model opened.

    Raises UserError for settings that do not go together, and for a model or an option that cannot be used, where
    possible before weights are loaded.
    """
    check_model_settings(settings)
    gates = read_gates(settings.gates)
    hosted = _open(settings)
    if not gates.gates:
        return hosted
    prompts_of = partial(hosted.prompts_of, around=lambda judge: GatedJudge(judge, gates))
    return replace(hosted, judge=GatedJudge(hosted.judge, gates), prompts_of=prompts_of)


def _open(settings: Settings) -> HostedJudge:
    if settings.judge == MIXTURE:
        return _mixture(mixture_sources(settings.judge_options))
    spec = spec_of(settings.judge)
    options = spec.read(settings.judge_options)  # refuses mistakes in them before the model is opened
    if isinstance(options, GenerativeOptions):
        return _on_generator(settings, options, _task_check(spec, options))
    counters = JudgeMetrics()
    judge = options.open(_process(settings, counters))
    if isinstance(judge, LearnedMetricJudge):
        return HostedJudge(judge, model=Path(str(judge.worker.model)).name)
    if isinstance(judge, AnswerJudge):
        reference = _TRUTHS.get(judge.rule, _TRANSLATION)
        return HostedJudge(judge, check_task=options.check_task, reference=reference)
    if not isinstance(judge, RewardModelJudge):
        return HostedJudge(judge)
    src_lang, _, trg_lang = next(iter(judge.language_pairs or ()), "de-en").partition("-")
    return HostedJudge(
        judge,
        model=model_name(settings),
        counters=counters,
        check_task=_checks(judge),
        languages=(src_lang, trg_lang),
    )


def _mixture(sources: Sequence[JudgeSource]) -> HostedJudge:
    """The sources' judges as one: it takes the tasks that all of them and their fallbacks take."""
    deadline = Deadline()
    mixture = open_mixture(sources, remaining_s=deadline.remaining_s)
    members = list(_members(sources, mixture.parts))
    checks = [_part_check(source, part) for source, part in members]
    rules = [str(source.options.get("rule")) for source, _ in members]

    def check_task(task: TranslationTask) -> None:
        for check in checks:
            check(task)

    return HostedJudge(
        mixture,
        deadline=deadline,
        check_task=check_task,
        compares_pairs=any(source.compares_pairs for source in sources),
        reference=next((_TRUTHS[rule] for rule in rules if rule in _TRUTHS), _TRANSLATION),
    )


def _members(sources: Sequence[JudgeSource], parts: Sequence[Part]) -> Iterator[tuple[JudgeSource, Part]]:
    """Sources with their parts, and the fallbacks of each."""
    for source, part in zip(sources, parts, strict=True):
        yield source, part
        if source.fallback is not None and part.fallback is not None:
            yield from _members([source.fallback], [part.fallback])


def _part_check(source: JudgeSource, part: Part) -> Callable[[TranslationTask], None]:
    judge = part.judge.inner if isinstance(part.judge, GatedJudge) else part.judge
    if isinstance(judge, RewardModelJudge):
        return _checks(judge)
    return _task_check(source.spec, source.spec.read(source.options))


def _process(settings: Settings, counters: JudgeMetrics) -> Process:
    return Process(
        settings.judge,
        reward_model=partial(
            open_reward_judge,
            str(settings.model),
            chat_template=settings.chat_template if "chat_template" in settings.model_fields_set else None,
            dtype=settings.dtype,
            metrics=counters,
        ),
        model=settings.model,
        seconds=settings.judge_deadline_s,
    )


def _on_generator(
    settings: Settings, options: GenerativeOptions, check_task: Callable[[TranslationTask], None]
) -> HostedJudge:
    deadline, counters, urls = Deadline(), JudgeMetrics(), settings.openai_urls
    seconds = min(settings.judge_deadline_s, WHICH_MODEL_S)
    opened, scheduler = open_judge_model(settings, deadline)
    generator = opened.generator
    opened = replace(opened, generator=TimedCounts(generator, deadline.remaining_s))
    process = Process(
        settings.judge,
        generator=lambda: opened,
        model=settings.model,
        served_model=lambda: served_model(urls, seconds, judge_token(settings)) if urls else None,
        metrics=counters,
    )
    options = options.of_process(process)
    return HostedJudge(
        options.open(process),
        model=model_name(settings),
        counters=counters,
        deadline=deadline,
        deadline_s=settings.judge_deadline_s,
        answers=lambda: _answers(opened),
        when_idle=generator.when_idle if isinstance(generator, TimedGenerator) else lambda act: act(),
        check_task=check_task,
        compares_pairs=spec_of(settings.judge).compares_pairs,
        scheduler=scheduler,
        prompts_of=partial(first_prompts, options=options, opened=opened),
    )


def _answers(opened: OpenedGenerator) -> bool:
    prompts = [opened.render("Good morning")]
    (reply,) = opened.generator.generate_text(prompts, temperature=0.0, max_new_tokens=1, seeds=[0])
    return reply.finish_reason in ("stop", "length")


def _task_check(spec: JudgeSpec, options: JudgeOptions) -> Callable[[TranslationTask], None]:
    """The check of tasks for a judge that its options describe, which may be a generative one of translations."""
    is_of_translations = isinstance(options, GenerativeOptions) and not spec.of_answers
    return _checks(options) if is_of_translations else options.check_task


def _checks(judge: object) -> Callable[[TranslationTask], None]:
    """The check of tasks for a judge, or its options, with or without `context_segments`."""
    n_segments = getattr(judge, "context_segments", 0)

    def check(task: TranslationTask) -> None:
        _check_languages(task)
        check_context(task, n_segments)

    return check


def _check_languages(task: TranslationTask) -> None:
    for language in (task.src_lang, task.trg_lang):
        if not language.strip():
            raise UserError("the languages are not told, and the judge's prompt names them: send src_lang and trg_lang")
        display_name(language)
