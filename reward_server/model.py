"""The model of a judge: which settings it takes, and how it is opened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from grrm.engine.open import OpenedGenerator, open_fastdeploy, open_model, open_servers
from grrm.engine.options import FASTDEPLOY, OptionNames, check_reward_model_options, choose_back_end
from grrm.engine.scheduler import BatchScheduler
from grrm.errors import UserError
from grrm.http_client.bearer import token_from_env
from grrm.inference.reward_scoring import open_reward_judge
from grrm.judges.building import GENERATIVE_JUDGES, REWARD_MODEL_JUDGES
from grrm.judges.deadline import Deadline, TimedGenerator
from grrm.judges.interface import TextGenerator
from grrm.judges.metric_worker import METRIC_KINDS
from grrm.judges.metrics import JudgeMetrics
from grrm.judges.options import RewardModelOptions, read_options
from grrm.judges.value_head import RewardModelJudge

from .settings import Settings

# Option of the engine -> setting of the server. `judge_deadline_s` is not here: it goes with every back end.
_SETTINGS = {
    "model": "model",
    "urls": "openai_urls",
    "token": "openai_token_env",
    "tokenizer": "tokenizer",
    "backend": "backend",
    "fastdeploy_options": "fastdeploy_options",
    "dtype": "dtype",
    "max_num_seqs": "max_num_seqs",
    "max_batched_tokens": "max_batched_tokens",
    "memory_fraction": "memory_fraction",
}
_NAMES = OptionNames({option: f"'{setting}'" for option, setting in _SETTINGS.items()}, noun="reward server setting ")


def check_model_settings(settings: Settings) -> None:
    """Raises UserError for settings that would have no effect, and for a model that is missing."""
    given = settings.model_fields_set
    if settings.judge in REWARD_MODEL_JUDGES:
        read_options(RewardModelOptions, settings.judge_options)
        if "judge_deadline_s" in given:
            raise UserError(
                f"reward server setting 'judge_deadline_s' has no effect, as judge {settings.judge!r} computes and "
                "does not wait for an answer: leave it out, or use judge gqm or sqm"
            )
    elif settings.judge not in GENERATIVE_JUDGES:
        own = ("model", "judge_deadline_s") if settings.judge in METRIC_KINDS else ()
        for name in (*_SETTINGS.values(), "chat_template", "judge_deadline_s"):
            if name in given and name not in own:
                raise UserError(
                    f"reward server setting {name!r} has no effect, as judge {settings.judge!r} has no model"
                    f"{' of ours' if own else ''}: leave it out, or use judge rm, ranker, gqm or sqm"
                )
        return
    empty = {name for name in ("model", "openai_urls") if not getattr(settings, name)}
    options = [option for option, name in _SETTINGS.items() if name in given - empty]
    if settings.judge in REWARD_MODEL_JUDGES:
        check_reward_model_options(options, _NAMES)
        return
    choose_back_end(options, _NAMES, settings.backend)


def open_reward_model(settings: Settings, counters: JudgeMetrics) -> RewardModelJudge:
    """The judge over the reward model that the settings name. Raises UserError for one that cannot be used."""
    options = read_options(RewardModelOptions, settings.judge_options)
    return open_reward_judge(
        str(settings.model),
        settings.judge,
        options,
        chat_template=settings.chat_template if "chat_template" in settings.model_fields_set else None,
        dtype=settings.dtype,
        metrics=counters,
    )


@dataclass(frozen=True, slots=True)
class JudgeModel:
    """An opened model, its generator with the judge's deadline, and what schedules it where callers share a batch."""

    opened: OpenedGenerator
    generator: TextGenerator
    scheduler: BatchScheduler | None = None


def open_judge_model(settings: Settings, deadline: Deadline) -> JudgeModel:
    """The model of the judge.

    Raises UserError, one sentence, for a checkpoint, an address, a tokenizer or a token that cannot be used.
    """
    if settings.openai_urls:
        opened = open_servers(
            settings.openai_urls,
            settings.model,
            settings.chat_template,
            tokenizer_path=settings.tokenizer,
            quiet=True,
            token=_token(settings.openai_token_env),
            deadline_s=settings.judge_deadline_s,
            read_timeout_s=settings.judge_deadline_s,
            unanswered="mark",
            seconds_left=deadline.seconds_left,
        )
        return JudgeModel(opened, opened.generator)
    folder, template, n_seqs = str(settings.model), settings.chat_template, settings.max_num_seqs
    if settings.backend == FASTDEPLOY:
        # No deadline of FastDeploy's own: `TimedGenerator` stops waiting at the judge's.
        options = settings.fastdeploy_options
        opened = open_fastdeploy(
            folder, chat_template=template, max_num_seqs=n_seqs, options=options, deadline_s=None, quiet=True
        )
        return JudgeModel(opened, TimedGenerator(opened.generator, deadline.seconds_left))
    model = open_model(
        folder,
        chat_template=template,
        max_num_seqs=n_seqs,
        dtype=settings.dtype,
        prefill_tokens=settings.max_batched_tokens,
        memory_fraction=settings.memory_fraction,
        quiet=True,
    )
    scheduler = BatchScheduler(model.engine, max_batched_tokens=settings.max_batched_tokens)
    opened = model.shared(scheduler, deadline)
    return JudgeModel(opened, opened.generator, scheduler)


def model_name(settings: Settings) -> str:
    """What probes and counters call the model: never a path."""
    if settings.openai_urls:
        name = settings.model or "the first of the servers"
        return Path(name).name if Path(name).is_absolute() else name
    return Path(str(settings.model)).resolve().name


def _token(name: str | None) -> str | None:
    return None if name is None else token_from_env(name, f"environment variable {name} of openai_token_env")
