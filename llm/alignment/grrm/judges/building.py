"""The registry of judges: built by name, or from a function of the user's own, and from plain options."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from grrm.errors import UserError, require_known
from grrm.gqm.chat import render_chatml
from grrm.gqm.fences import Guard
from grrm.gqm.groups import Group
from grrm.judges.answer import AnswerJudge
from grrm.judges.cache import CachedJudge, VerdictCache
from grrm.judges.chunk import ChunkedJudge
from grrm.judges.consensus import ConsensusJudge
from grrm.judges.dedup import DistinctJudge
from grrm.judges.gqm import GQMJudge
from grrm.judges.interface import CountingJudge, GeneratedText, Judge, TextGenerator
from grrm.judges.metric_worker import METRIC_KINDS
from grrm.judges.metrics import JudgeMetrics
from grrm.judges.options import (
    GenerativeOptions,
    GQMOptions,
    PairwiseOptions,
    RubricOptions,
    RuleOptions,
    RuleRubricOptions,
    RuleVerifierOptions,
    SQMOptions,
    VerifierOptions,
    read_options,
)
from grrm.judges.pairwise import PairwiseJudge
from grrm.judges.permute import PermutingJudge
from grrm.judges.plug_in import check_plug_in, is_plug_in, load_plug_in
from grrm.judges.rubric import RubricJudge
from grrm.judges.sqm import SQMJudge
from grrm.judges.text_metric import METRICS, TextMetricJudge
from grrm.judges.verified import VerifiedJudge
from grrm.judges.verifier import VerifierJudge
from grrm.rewards.answers import answer_rule
from grrm.rewards.verified import VerifierMix

DEFAULT_GQM = GQMOptions()
# Judges that need no model, by name, and what builds them from their options, its keyword arguments.
EMBEDDED_JUDGES: Mapping[str, Callable[..., Judge]] = {
    "text_metric": TextMetricJudge,
    **{metric: partial(TextMetricJudge, metric=metric) for metric in METRICS},
    "consensus": ConsensusJudge,
    "answer": AnswerJudge,
}
# Judges that are a reward model, by name, and its kind.
REWARD_MODEL_JUDGES: Mapping[str, str] = {"rm": "pairwise", "ranker": "ranker"}
# Judges that need a model that generates text, by name, and their options.
GENERATIVE_JUDGES: Mapping[str, type[GenerativeOptions]] = {
    "gqm": GQMOptions,
    "grrm": GQMOptions,
    "sqm": SQMOptions,
    "pairwise": PairwiseOptions,
    "rubric": RubricOptions,
    "verifier": VerifierOptions,
    "rule+rubric": RuleRubricOptions,
    "rule+verifier": RuleVerifierOptions,
}
JUDGES = (*EMBEDDED_JUDGES, *METRIC_KINDS, *REWARD_MODEL_JUDGES, *GENERATIVE_JUDGES)
# Judges of an answer by what the reference says: scoring criteria, or the true answer.
ANSWER_JUDGES = ("rubric", "verifier", "rule+rubric", "rule+verifier")


def check_judge_name(name: str, known: Iterable[str] = JUDGES) -> None:
    """Raises UserError for a judge that is none of `known`, and no function `module:function` whose module is there."""
    if is_plug_in(name):
        check_plug_in(name)
    else:
        require_known("judge", name, known)


def needs_no_model(name: str) -> bool:
    """True for the judges that `build_judge` builds."""
    return name in EMBEDDED_JUDGES or is_plug_in(name)


def build_judge(name: str = "text_metric", options: Mapping[str, object] | None = None) -> Judge:
    """The judge called `name`: "text_metric" or "consensus" (option `metric`), a metric's own name, "answer" (`rule`),
    or the user's own function `module:function`.

    `options` are the judge's constructor arguments. Raises UserError that names the nearest known name or option.
    """
    if is_plug_in(name):
        return load_plug_in(name, options or {})
    require_known("judge", name, EMBEDDED_JUDGES)
    build, chosen = EMBEDDED_JUDGES[name], dict(options or {})
    for option in chosen:
        require_known(f"option of judge {name!r}", option, inspect.signature(build).parameters)
    if name in METRICS and chosen.get("metric", name) != name:
        raise UserError(f"Judge {name!r} cannot take metric {chosen['metric']!r}; leave out one of the two.")
    return build(**chosen)


def options_of(name: str, values: Mapping[str, object], longest_prompt: int = sys.maxsize) -> GenerativeOptions:
    """The options of the generative judge called `name` from plain values.

    `prompt_length` is at most `longest_prompt`, and is that where it is not given. Raises UserError for a judge, an
    option or a value that is wrong.
    """
    require_known("judge", name, GENERATIVE_JUDGES)
    options = read_options(GENERATIVE_JUDGES[name], {"prompt_length": longest_prompt, **values})
    return dataclasses.replace(options, prompt_length=min(options.prompt_length, longest_prompt))


def build_from_options(
    generator: TextGenerator,
    options: GenerativeOptions,
    *,
    count_tokens: Callable[[str], int] | None = None,
    render: Callable[[str], str] = render_chatml,
    special_tokens: Iterable[str] = (),
    metrics: JudgeMetrics | None = None,
) -> Judge:
    """The generative judge that the options are for: the group judge for GQMOptions, else one of single candidates.

    `count_tokens` counts the judge's tokens where the generator cannot; `render` applies the judge's chat template;
    `special_tokens` of its tokenizer are escaped in what it is shown; counts are added to `metrics`.
    """
    metrics = JudgeMetrics() if metrics is None else metrics
    by_position = isinstance(options, GQMOptions) and (options.mode, options.prompt_type) == ("compat", "score")
    guard = Guard(frozenset(special_tokens), not isinstance(options, RubricOptions), by_position)
    settings: dict[str, Any] = {
        "prompt_length": options.prompt_length,
        "mode": options.mode,
        "sampling": options.sampling(),
        "guard": guard,
        "render": render,
        "count_tokens": count_tokens,
        "metrics": metrics,
    }
    if isinstance(options, RubricOptions):
        return _of_answers(generator, options, settings)
    if isinstance(options, PairwiseOptions):
        return PairwiseJudge(generator, **{name: value for name, value in settings.items() if name != "mode"})
    if isinstance(options, SQMOptions):
        settings["score_reading"] = options.score_reading
    if not isinstance(options, GQMOptions):
        return SQMJudge(generator, **settings)
    judge = GQMJudge(
        generator,
        **settings,
        prompt_type=options.prompt_type,
        add_example=options.add_example,
        max_candidates=options.max_candidates,
        too_long=options.too_long,
    )
    return DistinctJudge(_wrapped(judge, options), guard.is_safe, options.max_candidates if options.show_copies else 0)


def prompts_from_options(
    group: Group,
    options: GenerativeOptions,
    *,
    count_tokens: Callable[[str], int],
    render: Callable[[str], str] = render_chatml,
    special_tokens: Iterable[str] = (),
    around: Callable[[Judge], Judge] = lambda judge: judge,
) -> list[str]:
    """The prompts that the judge of `build_from_options`, with what is put `around` it, would ask about the group
    first; nothing is asked."""
    asked: list[str] = []

    class NoModel:
        def generate_text(self, prompts: Sequence[str], **sampling: Any) -> list[GeneratedText]:
            asked.extend(prompts)
            return [GeneratedText("", "stop", 0) for _ in prompts]

        def count_tokens(self, prompt: str) -> int:
            return count_tokens(prompt)

    once = dataclasses.replace(options, retries=0)
    if isinstance(once, GQMOptions):
        once = dataclasses.replace(once, cache_size=0)
    around(build_from_options(NoModel(), once, render=render, special_tokens=special_tokens)).judge([group])
    return asked


def _of_answers(generator: TextGenerator, options: RubricOptions, settings: dict[str, Any]) -> Judge:
    """The judge of answers that the options are for, with the rule beside it where they name one."""
    judge: Judge
    if isinstance(options, VerifierOptions):
        judge = VerifierJudge(generator, **settings, prompt_type=options.verifier_prompt, think=options.think)
    else:
        judge = RubricJudge(generator, **settings)
    if not isinstance(options, RuleOptions):
        return judge
    mix = VerifierMix(options.setup, options.verifier_weight)
    return VerifiedJudge(judge, answer_rule(options.rule), mix, options.shows_solution, f"rule+{judge.name}")


def _wrapped(judge: CountingJudge, options: GQMOptions) -> CountingJudge:
    """The group judge with what the options ask for around it: chunks outside, then permutations, then the cache.

    Every chunk is so averaged over permutations of its own: the anchor moves like every other candidate, and a failed
    one spoils no other chunk. The cache has one entry per prompt, so that only what failed is asked about again.
    """
    if options.cache_size:
        judge = CachedJudge(judge, VerdictCache(options.cache_size), repr(options))
    if options.shuffle or options.permutations > 1:
        judge = PermutingJudge(judge, options.permutations, options.shuffle, options.seed)
    if options.too_many == "chunk":
        judge = ChunkedJudge(judge, options.max_candidates)
    return judge
