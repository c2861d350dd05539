"""The model of a judge: which settings it takes, and how it is opened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from grrm.engine.open import open_fastdeploy, open_model, open_servers
from grrm.engine.options import FASTDEPLOY, OptionNames, check_reward_model_options, choose_back_end
from grrm.engine.scheduler import BatchScheduler
from grrm.errors import UserError
from grrm.http_client.exchange import token_from_env
from grrm.judges.deadline import Deadline, TimedGenerator
from grrm.judges.interface import OpenedGenerator
from grrm.judges.registry import spec_of
from grrm.judges.sources import MIXTURE
from grrm.models.trained_with import checkpoint_template

from .settings import Settings

# Option of the engine -> setting of the server. `judge_deadline_s` is not here: it goes with every back end.
_SETTINGS = {
    "model": "model",
    "urls": "openai_urls",
    "token": "openai_token_env",
    **{name: name for name in ("tokenizer", "backend", "fastdeploy_options", "dtype")},
    **{name: name for name in ("max_num_seqs", "max_batched_tokens", "memory_fraction")},
}
_NAMES = OptionNames({option: f"'{setting}'" for option, setting in _SETTINGS.items()}, noun="reward server setting ")


def check_model_settings(settings: Settings) -> None:
    """Raise UserError for wrong options, settings that would have no effect, and a model that is missing."""
    explicit = settings.model_fields_set
    if settings.judge != MIXTURE:
        spec_of(settings.judge).read(settings.judge_options)
    if settings.needs == "reward model":
        if "judge_deadline_s" in explicit:
            raise UserError(
                f"reward server setting 'judge_deadline_s' has no effect, as judge {settings.judge!r} computes and "
                "does not wait for an answer: leave it out, or use judge gqm or sqm"
            )
    elif settings.needs != "generator":
        own = ("model", "judge_deadline_s") if settings.needs == "metric" else ()
        for name in (*_SETTINGS.values(), "chat_template", "judge_deadline_s"):
            if name in explicit and name not in own:
                raise UserError(
                    f"reward server setting {name!r} has no effect, as judge {settings.judge!r} has no model"
                    f"{' of ours' if own else ''}: leave it out, or use judge rm, ranker, gqm or sqm"
                )
        return
    empty = {name for name in ("model", "openai_urls") if not getattr(settings, name)}
    options = [option for option, name in _SETTINGS.items() if name in explicit - empty]
    if settings.needs == "reward model":
        check_reward_model_options(options, _NAMES)
        return
    choose_back_end(options, _NAMES, settings.backend)


def open_judge_model(settings: Settings, deadline: Deadline) -> tuple[OpenedGenerator, BatchScheduler | None]:
    """The model of the judge with its deadline, and what schedules it where callers share a batch.

    Raises UserError, one sentence, for a checkpoint, an address, a tokenizer or a token that cannot be used.
    """
    if settings.openai_urls:
        opened = open_servers(
            settings.openai_urls,
            settings.model,
            settings.chat_template,
            tokenizer_path=settings.tokenizer,
            quiet=True,
            token=judge_token(settings),
            deadline_s=settings.judge_deadline_s,
            read_timeout_s=settings.judge_deadline_s,
            unanswered="mark",
            remaining_s=deadline.remaining_s,
        )
        return opened, None
    folder, n_seqs = str(settings.model), settings.max_num_seqs
    template = checkpoint_template(
        folder, settings.chat_template if "chat_template" in settings.model_fields_set else None
    )
    if settings.backend == FASTDEPLOY:
        # No deadline of FastDeploy's own: `TimedGenerator` stops waiting at the judge's.
        options = settings.fastdeploy_options
        opened = open_fastdeploy(
            folder, chat_template=template, max_num_seqs=n_seqs, options=options, deadline_s=None, quiet=True
        )
        return replace(opened, generator=TimedGenerator(opened.generator, deadline.remaining_s)), None
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
    return model.shared(scheduler, deadline), scheduler


def model_name(settings: Settings) -> str:
    """The name of the model in probes and counters: never a path."""
    if settings.openai_urls:
        name = settings.model or "the first of the servers"
        return Path(name).name if Path(name).is_absolute() else name
    return Path(str(settings.model)).resolve().name


def judge_token(settings: Settings) -> str | None:
    """The bearer token of the model's servers. Raises UserError for a variable that is not set."""
    name = settings.openai_token_env
    return None if name is None else token_from_env(name, f"environment variable {name} of openai_token_env")
