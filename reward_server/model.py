"""The model of a generative judge: which settings it takes, and how it is opened."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from grrm.engine.fastdeploy_options import check_options
from grrm.errors import UserError
from grrm.judges.building import GENERATIVE_JUDGES
from grrm.judges.deadline import Deadline, TimedGenerator
from grrm.judges.interface import TextGenerator
from grrm.rewards.bearer import token_from_env

from .settings import Settings

_OF_SERVERS = ("openai_token_env", "tokenizer")
_OF_FASTDEPLOY = ("fastdeploy_options",)
_OF_CHECKPOINTS = ("backend", *_OF_FASTDEPLOY, "dtype", "max_num_seqs")
_OF_MODELS = ("model", "openai_urls", *_OF_SERVERS, "chat_template", *_OF_CHECKPOINTS, "judge_deadline_s")


def check_model_settings(settings: Settings) -> None:
    """Raises UserError for settings that would have no effect, and for a model that is missing."""
    given = settings.model_fields_set
    if settings.judge not in GENERATIVE_JUDGES:
        _refuse(given, _OF_MODELS, f"judge {settings.judge!r} has no model", "use judge gqm or sqm")
    elif settings.openai_urls:
        _refuse(given, _OF_CHECKPOINTS, "the model runs on the servers of openai_urls", "set it there")
    else:
        _refuse(given, _OF_SERVERS, "the model is a checkpoint", "name servers with openai_urls")
        if settings.backend == "fastdeploy":
            _refuse(given, ("dtype",), "FastDeploy computes in bfloat16", "set backend: paddle")
            check_options(settings.fastdeploy_options)
        else:
            _refuse(given, _OF_FASTDEPLOY, "the backend is paddle", "set backend: fastdeploy")
        if settings.model is None:
            raise UserError(
                f"judge {settings.judge!r} needs a model: give the folder of a checkpoint with --model, or a server "
                "with --openai-url"
            )


def open_model(settings: Settings, deadline: Deadline) -> tuple[Any, TextGenerator]:
    """What the engine knows of the opened model, and its generator under the deadline.

    The engine is imported by name: the server as such does without paddle, and so does a pool of model servers.
    Raises UserError, one sentence, for a checkpoint, an address, a tokenizer or a token that cannot be used.
    """
    if settings.openai_urls:
        if settings.tokenizer is not None:
            _quiet_paddlenlp()
        opened = import_module("grrm.engine.open").open_servers(
            settings.openai_urls,
            settings.model,
            settings.chat_template,
            tokenizer_path=settings.tokenizer,
            token=_token(settings.openai_token_env),
            deadline_s=settings.judge_deadline_s,
            read_timeout_s=settings.judge_deadline_s,
            unanswered="mark",
            seconds_left=deadline.seconds_left,
        )
        return opened, opened.generator
    if find_spec("paddle") is None or find_spec("safetensors") is None:
        raise UserError(
            "a checkpoint needs Paddle: `pip install 'paddle-grrm[train]'`, or name a server with --openai-url"
        )
    directory = Path(str(settings.model))
    import_module("grrm.models.checkpoint").check_checkpoint(directory)  # paddle takes its time to load
    if settings.backend == "fastdeploy":
        import_module("grrm.engine.fastdeploy_engine").check_installed()
    _quiet_paddlenlp()
    opened = _open_checkpoint(settings, directory)
    return opened, TimedGenerator(opened.generator, deadline.seconds_left)


def _open_checkpoint(settings: Settings, directory: Path) -> Any:
    opening = import_module("grrm.engine.open")
    common = {"chat_template": settings.chat_template, "max_num_seqs": settings.max_num_seqs}
    if settings.backend == "fastdeploy":
        # No deadline of its own: the judge's is what waiting for the generator ends at.
        return opening.open_fastdeploy(directory, options=settings.fastdeploy_options, deadline_s=None, **common)
    return opening.open_checkpoint(directory, dtype=settings.dtype, **common)


def model_name(settings: Settings) -> str:
    """What probes and counters call the model: never a path."""
    if settings.openai_urls:
        name = settings.model or "the first of the servers"
        return Path(name).name if Path(name).is_absolute() else name
    return Path(str(settings.model)).resolve().name


def _refuse(given: set[str], names: tuple[str, ...], reason: str, remedy: str) -> None:
    for name in names:
        if name in given:
            raise UserError(f"reward server setting {name!r} has no effect, as {reason}: leave it out, or {remedy}")


def _quiet_paddlenlp() -> None:
    import_module("grrm.training.quiet_loading").load_paddlenlp_quietly()


def _token(name: str | None) -> str | None:
    return None if name is None else token_from_env(name, f"environment variable {name} of openai_token_env")
