"""The options of a judge, which the commands that open it share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from grrm.cli.options import (
    COUNT,
    FILE,
    NAMES,
    JudgeName,
    JudgeOption,
    explicit_model_options,
    is_explicit,
    model_options,
    option_group,
    refuse_ineffective,
    sampling_options,
    take_model_options,
)
from grrm.engine.options import check_reward_model_options
from grrm.gqm.mt_prompts import MT_PROMPT_TYPES
from grrm.gqm.prompts import GQM_TASKS
from grrm.gqm.verification import VERIFIER_PROMPT_TYPES

if TYPE_CHECKING:
    from grrm.gqm.groups import Group
    from grrm.judges.interface import Judge
    from grrm.judges.metrics import JudgeMetrics
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
# --judge with all options of judges and their models, which `choose_judge` takes.
judge_options = option_group(
    model_options,
    sampling_options(max_new_tokens=8192, retry=6),
    click.option("--judge", cls=JudgeOption, type=JudgeName(), metavar="NAME", default="gqm", show_default=True),
    click.option(
        "--judge-option",
        "judge_options",
        multiple=True,
        metavar="NAME=VALUE",
        help="Option of the judge, such as rule=gsm8k, by the reward server's name; repeat for several.",
    ),
    click.option(
        "--scorer-env", type=FILE, help="With learned metrics such as comet: the environment.  [default: .venv-NAME]"
    ),
    click.option(
        "--mt-prompt-type",
        type=click.Choice(MT_PROMPT_TYPES),
        help="With --judge ranker or rm: the translation prompt that it was trained with.  [default: as its folder "
        "records, else Tower]",
    ),
    click.option(
        "--any-language-pair",
        is_flag=True,
        help="With --judge ranker or rm: score language pairs that it was not trained on, too.",
    ),
    click.option(
        "--metric",
        type=click.Choice(METRICS),
        help="Metric of --judge text_metric and of consensus.  [default: chrf]",
    ),
    click.option(
        "--verifier-prompt",
        type=click.Choice(VERIFIER_PROMPT_TYPES),
        help="With --judge verifier or rule+verifier: the prompt it was trained with.  [default: by its name, else "
        "tinyv]",
    ),
    click.option(
        "--think/--no-think",
        default=None,
        help="With --judge verifier or rule+verifier: a reasoning model.  [default: by its name]",
    ),
    click.option(
        "--prompt-type",
        type=click.Choice(list(GQM_TASKS)),
        default="ranking_score",
        show_default=True,
        help="Output requested from the judge.",
    ),
    click.option("--add-example", is_flag=True, help="Show the judge an example of a verdict."),
    click.option("--shuffle", is_flag=True, help="Show the candidates in a seeded random order."),
    click.option(
        "--permutations",
        type=COUNT,
        default=1,
        show_default=True,
        help="Number of candidate orders to judge and average.",
    ),
    click.option("--prompt-length", type=COUNT, help="Maximum judge prompt in tokens.  [default: the model's limit]"),
    click.option(
        "--grammar",
        type=click.Choice(["exact", "tolerant", "compat"]),
        default="tolerant",
        show_default=True,
        help="Grammar of verdicts.",
    ),
)


class ChosenJudge(NamedTuple):
    """A judge that is not open yet, and the settings that its verdicts depend on, those at their defaults left out."""

    open: Callable[[], Judge]
    settings: dict[str, Any]


def choose_judge(
    spec: JudgeSpec, groups: Sequence[Group], metrics: JudgeMetrics, flags: dict[str, Any], assignments: dict[str, Any]
) -> ChosenJudge:
    """Return the judge with the options of its flags and `assignments`.

    Raises UserError for what can be refused before it is opened.
    """
    from grrm.inference.rank import METRIC_SECONDS
    from grrm.judges.spec import Process
    from grrm.models.trained_with import checkpoint_template

    _refuse_model_options(spec)
    model, template = take_model_options(flags), flags.pop("chat_template")
    explicit = template if is_explicit("--chat-template") else None
    options = spec.read({**_options_of_flags(spec, flags, assignments), **assignments})
    for group in groups:
        options.check_task(group.task)

    def reward_model(name: str, options: Any) -> Judge:
        from grrm.inference.reward_scoring import open_reward_judge

        opened = open_reward_judge(
            str(model.model), name, options, chat_template=explicit, dtype=model.dtype, metrics=metrics
        )
        opened.warns = False  # the summary says it
        return opened

    process = Process(
        spec.name,
        generator=lambda: model.open(
            template if model.urls else checkpoint_template(str(model.model), explicit), marks_unanswered=True
        ),
        reward_model=reward_model,
        model=model.model,
        served_model=model.served,
        seconds=model.deadline or METRIC_SECONDS,
        metrics=metrics,
    )
    settings = {"judge": spec.name, "model": model.model, "chat_template": explicit}
    settings |= options.model_dump(mode="json", exclude_defaults=True)
    return ChosenJudge(
        lambda: options.open(process), {name: value for name, value in settings.items() if value is not None}
    )


def context_segments_of(spec: JudgeSpec, assignments: dict[str, Any], model: str | None) -> int:
    """The preceding segments that the judge shows: by its option, or as its reward model was trained."""
    from grrm.models.trained_with import read_trained_with

    if spec.needs == "reward model":
        return (read_trained_with(model).context_segments or 0) if model else 0
    requested = assignments.get("context_segments", 0)
    has_option = "context_segments" in spec.options.model_fields
    return requested if has_option and isinstance(requested, int) else 0  # what else there is, opening refuses


def _refuse_model_options(spec: JudgeSpec) -> None:
    """Raise UserError for options of a model that the judge has no use for."""
    if spec.needs == "reward model":
        check_reward_model_options(explicit_model_options(), NAMES)
    elif spec.needs != "generator":
        allowed = ("model", "deadline") if spec.needs == "metric" else ()
        refuse_ineffective(tuple(name for name in OF_MODELS if name not in allowed), _with_judge(spec))


def _options_of_flags(spec: JudgeSpec, flags: dict[str, Any], assignments: dict[str, Any]) -> dict[str, Any]:
    """Return the judge's options that flags set; a judge of answers has defaults of its own.

    Raises UserError for one without effect, or that is given twice.
    """
    options: dict[str, Any] = {}
    for flag, needs in FLAGS.items():
        option = OPTION_OF.get(flag, flag)
        if spec.needs != needs or option not in spec.options.model_fields:
            why = ", which sees one candidate at a time" if flag in OF_GROUPS else ""
            refuse_ineffective((flag,), _with_judge(spec) + ("" if spec.needs in _WHY else why))
        elif option in assignments:
            refuse_ineffective((flag,), f"beside --judge-option {option}")
        elif flags[flag] is not None and (not spec.of_answers or is_explicit(f"--{flag.replace('_', '-')}")):
            options[option] = str(flags[flag]) if isinstance(flags[flag], Path) else flags[flag]
    return options


def _with_judge(spec: JudgeSpec) -> str:
    return f"with --judge {spec.name}{_WHY.get(spec.needs, '')}"
