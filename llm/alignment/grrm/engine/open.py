"""Opening what generates text: a checkpoint folder on the Paddle engine or on FastDeploy, or a pool of servers.

Paddle is imported when a checkpoint or a tokenizer is opened, not with this module.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grrm.config.values import is_hub_name
from grrm.engine.api import Engine
from grrm.engine.constraint import Vocabulary
from grrm.engine.options import (
    AUTO_DTYPE,
    DTYPES,
    FASTDEPLOY,
    PADDLE,
    SERVER_WAIT_S,
    SERVERS,
    OptionNames,
    check_fastdeploy_options,
    choose_back_end,
)
from grrm.engine.scheduler import BatchScheduler
from grrm.engine.shared import SharedEngine
from grrm.engine.text import EngineTextGenerator
from grrm.errors import UserError, require_known
from grrm.gqm.chat import EOS_TEXT, SERVER_TEMPLATE
from grrm.judges.deadline import Deadline
from grrm.judges.interface import OpenedGenerator
from grrm.models import cpu_kernels
from grrm.models.chat_templates import chat_renderer, turns_renderer
from grrm.models.hub import checkpoint_folder
from grrm.models.tokenizer import (
    check_vocabulary,
    encoder,
    load_tokenizer,
    reply_ends,
    response_decoder,
    special_tokens,
)

if TYPE_CHECKING:
    from grrm.engine.paddle.engine import PaddleEngine

DEADLINE_S = 1800.0  # what FastDeploy may take for one batch
_ARGUMENTS = OptionNames({"fastdeploy_options": "options", "deadline": "deadline_s", "tokenizer": "tokenizer_path"})


def open_generator(
    model: str | Path | None,
    *,
    urls: Sequence[str] = (),
    backend: str | None = None,
    chat_template: str = "chatml",
    **settings: Any,
) -> OpenedGenerator:
    """`open_servers` when `urls` are given, with `model` as the model's name there; else the folder `model`.

    A folder is opened by `open_checkpoint`, or with the backend "fastdeploy" by `open_fastdeploy`. `settings` are the
    keyword arguments of that function. Raises UserError for one that has no effect, and as the function does.
    """
    named = {"model": model, "urls": urls or None, "backend": backend, **settings}
    options = {argument: option for option, argument in _ARGUMENTS.names.items()}
    specified = [options.get(name, name) for name, value in named.items() if value is not None and name != "quiet"]
    back_end = choose_back_end(specified, _ARGUMENTS, backend or PADDLE)
    settings = {name: value for name, value in settings.items() if value is not None}
    if back_end == SERVERS:
        settings = {"required_within_s": SERVER_WAIT_S} | settings
        return open_servers(urls, None if model is None else str(model), chat_template, **settings)
    open_folder = open_fastdeploy if back_end == FASTDEPLOY else open_checkpoint
    return open_folder(str(model), chat_template=chat_template, **settings)


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """A checkpoint's engine and tokenizer, and what applies the chat template to a user's turn, and to a chat's."""

    engine: PaddleEngine
    tokenizer: Any
    render: Callable[[str], str]
    render_turns: Callable[[Sequence[Mapping[str, str]]], str] | None
    vocabulary: Vocabulary | None  # None without a tokenizer.json

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """The tokens that end a reply."""
        return reply_ends(self.tokenizer)

    @property
    def encode(self) -> Callable[[str], list[int]]:
        """A complete prompt to tokens."""
        return encoder(self.tokenizer)

    @property
    def decode(self) -> Callable[[Sequence[int]], str]:
        """Tokens to text, special ones left out."""
        return response_decoder(self.tokenizer)

    @property
    def decode_all(self) -> Callable[[Sequence[int]], str]:
        """Tokens to text, special ones as well."""
        return response_decoder(self.tokenizer, skip_special_tokens=False)

    def alone(self, seed: int = 0) -> OpenedGenerator:
        """A generator for one caller at a time, whose every call is a batch."""
        return over_engine(self.engine, self.tokenizer, self.render, seed)

    def shared(self, scheduler: BatchScheduler, deadline: Deadline) -> OpenedGenerator:
        """A generator for several threads at once, whose calls share the batch of `scheduler` until their deadline."""
        engine = SharedEngine(scheduler, deadline)
        return over_engine(engine, self.tokenizer, self.render)


def open_checkpoint(
    directory: str | Path, *, chat_template: str = "chatml", seed: int = 0, **settings: Any
) -> OpenedGenerator:
    """The model in a checkpoint folder behind the Paddle engine, for one caller; the rest as for `open_model`."""
    return open_model(directory, chat_template=chat_template, **settings).alone(seed)


def open_model(
    directory: str | Path,
    *,
    chat_template: str = "chatml",
    dtype: str = AUTO_DTYPE,
    quiet: bool = False,
    memory_fraction: float | None = None,
    free_memory_fraction: float | None = None,
    prefill_tokens: int | None = None,
    part: Mapping[str, Any] | None = None,
    **settings: Any,
) -> OpenedModel:
    """The model in a checkpoint folder, or of a hub's name, behind a Paddle engine with these `settings`.

    Settings are checked before the weights are loaded. With the dtype "auto" weights have the checkpoint's type on a
    GPU and float32 on a CPU. With bfloat16 on a CPU the kernels round what they multiply; the weights stay float32.

    Args:
        directory: folder or hub name.
        chat_template: name of the template that `render` applies.
        dtype: one of `DTYPES`.
        quiet: whether to suppress the messages of PaddleNLP below warnings.
        memory_fraction: limit of the KV cache as a fraction of the device's memory, instead of `max_cache_bytes`.
        free_memory_fraction: the same as a fraction of the memory that is free when a call begins.
        prefill_tokens: prompt tokens of one prefill at most.
        part: settings of the model's config with which a tensor rank loads its part; None: the model is undivided.
        settings: those of `PaddleEngine`.

    Raises:
        UserError: for a folder that is missing, incomplete, of another architecture, without tokenizer or without the
            chat template, for a tokenizer with more tokens than the model, and for a dtype this device cannot run.
    """
    from grrm.models.checkpoint import check_policy, load_causal_lm, stored_dtype

    require_known("dtype", dtype, DTYPES)
    directory = _folder(directory, quiet)
    config = check_policy(directory)
    prepare_paddle(quiet)
    if dtype == AUTO_DTYPE:
        dtype = "float32" if cpu_kernels.in_use() else stored_dtype(config)
    of_weights, of_products = ("float32", dtype) if cpu_kernels.in_use() else (dtype, "float32")
    if of_products != "float32":
        cpu_kernels.check_rounding(dtype)
    tokenizer = load_tokenizer(directory)
    render = chat_renderer(chat_template, tokenizer, directory)
    model = load_causal_lm(directory, of_weights, **(part or {}))
    check_vocabulary(tokenizer, model.config.vocab_size, directory)
    from grrm.engine.paddle.device_memory import device_memory_bytes
    from grrm.engine.paddle.engine import PaddleEngine
    from grrm.engine.paddle.policy_engines import DividedEngine

    settings |= {} if prefill_tokens is None else {"prefill_tokens": prefill_tokens}
    if memory_fraction is not None:
        settings["max_cache_bytes"] = max(1, int(memory_fraction * device_memory_bytes()))
    if free_memory_fraction is not None:
        settings |= {"max_cache_bytes": None, "memory_fraction": free_memory_fraction}
    engine = (DividedEngine if part else PaddleEngine)(model, precision=of_products, **settings)
    file = directory / "tokenizer.json"
    vocabulary = None
    if file.is_file():
        vocabulary = Vocabulary(str(file.resolve()), model.config.vocab_size, reply_ends(tokenizer))
    return OpenedModel(engine, tokenizer, render, turns_renderer(chat_template, tokenizer, directory), vocabulary)


def open_fastdeploy(
    directory: str | Path,
    *,
    chat_template: str = "chatml",
    max_num_seqs: int = 256,
    seed: int = 0,
    options: Mapping[str, object] | None = None,
    deadline_s: float | None = DEADLINE_S,
    quiet: bool = False,
) -> OpenedGenerator:
    """The model in a checkpoint folder, behind PaddlePaddle's FastDeploy in worker processes of this one.

    `options` are those of `check_fastdeploy_options`; a batch takes at most `deadline_s` seconds, None as long as the
    caller waits. Raises UserError as `open_checkpoint` does, and as `FastDeployEngine.start`.
    """
    from grrm.engine.fastdeploy_engine import FastDeployEngine, check_installed
    from grrm.models.checkpoint import check_policy

    options = check_fastdeploy_options(options or {})
    directory = _folder(directory, quiet)
    config = check_policy(directory)
    vocab_size, max_positions = (_size(config, key, directory) for key in ("vocab_size", "max_position_embeddings"))
    check_installed()
    prepare_paddle(quiet)
    tokenizer = load_tokenizer(directory)
    render = chat_renderer(chat_template, tokenizer, directory)
    check_vocabulary(tokenizer, vocab_size, directory)
    engine = FastDeployEngine.start(
        directory,
        vocab_size=vocab_size,
        max_positions=max_positions,
        max_num_seqs=max_num_seqs,
        deadline_s=deadline_s,
        options=options,
    )
    return over_engine(engine, tokenizer, render, seed)


def open_servers(
    urls: Sequence[str],
    model: str | None = None,
    chat_template: str = "chatml",
    *,
    tokenizer_path: str | Path | None = None,
    quiet: bool = False,
    **settings: Any,
) -> OpenedGenerator:
    """A pool of OpenAI-compatible servers of one model; `settings` as for `OpenAITextGenerator`.

    The tokenizer folder is needed for the checkpoint's own chat template and for limits on prompts in tokens. The
    template "server" asks the servers' chat endpoint.
    Raises UserError for a malformed URL and as `load_tokenizer` and `chat_renderer` do.
    """
    from grrm.engine.openai_text import OpenAITextGenerator

    tokenizer = folder = None
    if tokenizer_path is not None:
        prepare_paddle(quiet)
        folder = checkpoint_folder(tokenizer_path)
        tokenizer = load_tokenizer(folder)
    is_chat = chat_template == SERVER_TEMPLATE
    render = str if is_chat else chat_renderer(chat_template, tokenizer, folder)
    stop = (EOS_TEXT,) if chat_template == "chatml" else ()
    generator = OpenAITextGenerator(urls, model, chat=is_chat, stop=stop, tokenizer=tokenizer, **settings)
    specials = () if tokenizer is None else special_tokens(tokenizer)
    return OpenedGenerator(generator, render, None, tokenizer is not None, specials, continues_text=not is_chat)


def over_engine(engine: Engine, tokenizer: Any, render: Callable[[str], str], seed: int = 0) -> OpenedGenerator:
    """A generator over an engine that is open already and the tokenizer of its model, with its limit on prompts.

    Raises UserError for a tokenizer without a token to stop at.
    """
    encode, decode = encoder(tokenizer), response_decoder(tokenizer)
    generator = EngineTextGenerator(engine, encode, decode, reply_ends(tokenizer), seed)
    return OpenedGenerator(generator, render, engine.max_prompt_tokens, special_tokens=special_tokens(tokenizer))


def _folder(name: str | Path, quiet: bool) -> Path:
    if is_hub_name(str(name)):  # then paddle is imported, to look there
        prepare_paddle(quiet)
    return checkpoint_folder(name)


def _size(config: Mapping[str, Any], key: str, directory: Path) -> int:
    if not isinstance(config.get(key), int):
        raise UserError(f"'{directory}/config.json' names no {key}: get the checkpoint's own config.json again")
    return int(config[key])


def prepare_paddle(quiet: bool) -> None:
    """Set the process up before Paddle is imported; `quiet` imports PaddleNLP and keeps back all but its warnings."""
    if "paddle" not in sys.modules:
        from grrm.startup import configure_process

        configure_process()
    if quiet:
        from grrm.paddlenlp_api.files import logger

        logger.set_level("WARNING")
        logger.handler.setLevel(logging.WARNING)
