"""Judges built by name from plain options: text metrics, and generative judges over any text generator."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from grrm.errors import UserError, require_known
from grrm.gqm.chat import render_chatml
from grrm.gqm.fences import guard_for
from grrm.judges.answer import AnswerJudge
from grrm.judges.cache import CachedJudge, VerdictCache
from grrm.judges.chunk import ChunkedJudge
from grrm.judges.consensus import ConsensusJudge
from grrm.judges.gqm import GQMJudge
from grrm.judges.interface import Judge, TextGenerator
from grrm.judges.metrics import JudgeMetrics
from grrm.judges.options import GQMOptions, RubricOptions, SQMOptions, VerifierOptions, read_options
from grrm.judges.permute import PermutingJudge
from grrm.judges.rubric import RubricJudge
from grrm.judges.sqm import SQMJudge
from grrm.judges.text_metric import METRICS, TextMetricJudge
from grrm.judges.verifier import VerifierJudge

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
GENERATIVE_JUDGES: Mapping[str, type[SQMOptions]] = {
    "gqm": GQMOptions,
    "grrm": GQMOptions,
    "sqm": SQMOptions,
    "rubric": RubricOptions,
    "verifier": VerifierOptions,
}
# Judges of an answer by what the reference says: scoring criteria, or the true answer.
ANSWER_JUDGES = ("rubric", "verifier")


def build_judge(name: str = "text_metric", options: Mapping[str, object] | None = None) -> Judge:
    """The judge called `name`: "text_metric" or "consensus" (option `metric`), a metric's own name, "answer" (`rule`).

    `options` are the judge's constructor arguments. Raises UserError that names the nearest known name or option.
    """
    require_known("judge", name, EMBEDDED_JUDGES)
    build, chosen = EMBEDDED_JUDGES[name], dict(options or {})
    for option in chosen:
        require_known(f"option of judge {name!r}", option, inspect.signature(build).parameters)
    if name in METRICS and chosen.get("metric", name) != name:
        raise UserError(f"Judge {name!r} cannot take metric {chosen['metric']!r}; leave out one of the two.")
    return build(**chosen)


def options_of(name: str, values: Mapping[str, object], longest_prompt: int = sys.maxsize) -> SQMOptions:
    """The options of the generative judge called `name` from plain values.

    `prompt_length` is at most `longest_prompt`, and is that where it is not given. Raises UserError for a judge, an
    option or a value that is wrong.
    """
    require_known("judge", name, GENERATIVE_JUDGES)
    options = read_options(GENERATIVE_JUDGES[name], {"prompt_length": longest_prompt, **values})
    return dataclasses.replace(options, prompt_length=min(options.prompt_length, longest_prompt))


def build_from_options(
    generator: TextGenerator,
    options: SQMOptions,
    *,
    count_tokens: Callable[[str], int] | None = None,
    render: Callable[[str], str] = render_chatml,
    special_tokens: Iterable[str] = (),
    metrics: JudgeMetrics | None = None,
) -> Judge:
    """The generative judge that the options are for: the group judge for GQMOptions, else one of single candidates.

    `count_tokens` counts the judge's tokens where the generator cannot; `render` applies the judge's chat template;
    `special_tokens` of its tokenizer may not occur in a candidate; counts are added to `metrics`.
    """
    metrics = JudgeMetrics() if metrics is None else metrics
    is_safe = guard_for(special_tokens, fenced=not isinstance(options, RubricOptions))
    settings: dict[str, Any] = {
        "prompt_length": options.prompt_length,
        "mode": options.mode,
        "sampling": options.sampling(),
        "is_safe": is_safe,
        "render": render,
        "count_tokens": count_tokens,
        "metrics": metrics,
    }
    if isinstance(options, VerifierOptions):
        return VerifierJudge(generator, **settings, prompt_type=options.verifier_prompt, think=options.think)
    if isinstance(options, RubricOptions):
        return RubricJudge(generator, **settings)
    if not isinstance(options, GQMOptions):
        return SQMJudge(generator, **settings)
    room = options.max_candidates if options.show_copies else 0
    judge = GQMJudge(
        generator,
        **settings,
        prompt_type=options.prompt_type,
        add_example=options.add_example,
        max_candidates=options.max_candidates,
        too_long=options.too_long,
        room_for_copies=room,
    )
    return _wrapped(judge, options, is_safe, metrics, room)


def _wrapped(
    judge: Judge, options: GQMOptions, is_safe: Callable[[str], bool], metrics: JudgeMetrics, room: int
) -> Judge:
    """The group judge with what the options ask for around it: chunks outside, then permutations, then the cache.

    Every chunk is so averaged over permutations of its own: the anchor moves like every other candidate, and a failed
    one spoils no other chunk. The cache has one entry per prompt, so that only what failed is asked about again.
    """
    if options.cache_size:
        judge = CachedJudge(judge, VerdictCache(options.cache_size), repr(options), is_safe, metrics, room)
    if options.shuffle or options.permutations > 1:
        judge = PermutingJudge(judge, options.permutations, options.shuffle, options.seed, is_safe, metrics, room)
    if options.too_many == "chunk":
        judge = ChunkedJudge(judge, options.max_candidates, is_safe, metrics, room)
    return judge
