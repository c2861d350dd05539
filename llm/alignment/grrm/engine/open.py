"""Opening what generates text: a checkpoint folder on the Paddle engine or on FastDeploy, or a pool of servers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grrm.engine.api import Engine
from grrm.engine.fastdeploy_options import check_options
from grrm.engine.text import EngineTextGenerator
from grrm.errors import UserError
from grrm.gqm.chat import EOS_TEXT, render_chatml
from grrm.judges.interface import TextGenerator
from grrm.models import cpu_kernels
from grrm.models.tokenizer import chat_renderer, load_tokenizer, special_tokens
from grrm_csrc.build import kernels

BACKENDS = ("paddle", "fastdeploy")  # of a checkpoint folder
DTYPES = ("float32", "bfloat16")
DEADLINE_S = 1800.0  # what FastDeploy may take for one batch


@dataclass(frozen=True, slots=True)
class OpenedGenerator:
    """A generator with what belongs to its model.

    `render` applies the chat template to a user's turn. `max_prompt_tokens` is the longest prompt that leaves room for
    one token, None where only the server knows. `counts_tokens` is False where `generator.count_tokens` is no more
    than an upper bound. `special_tokens` of the tokenizer may not occur in what a judge is shown.
    """

    generator: TextGenerator
    render: Callable[[str], str]
    max_prompt_tokens: int | None
    counts_tokens: bool = True
    special_tokens: tuple[str, ...] = ()


def open_generator(
    model: str | Path | None,
    *,
    urls: Sequence[str] = (),
    backend: str = "paddle",
    chat_template: str = "chatml",
    dtype: str | None = None,
    max_num_seqs: int = 256,
    seed: int = 0,
    tokenizer_path: str | Path | None = None,
    **settings: Any,
) -> OpenedGenerator:
    """`open_servers` when `urls` are given, with `model` as the model's name there; else the folder `model`.

    A folder is opened by `open_checkpoint`, or with the backend "fastdeploy" by `open_fastdeploy`. `settings` are
    those that only one of the functions has.
    """
    if backend not in BACKENDS:
        raise UserError(f"backend {backend!r} does not exist: use one of {', '.join(BACKENDS)}")
    if urls:
        if backend != "paddle":
            raise UserError(f"backend {backend!r} has no effect with the URL of a server: leave one of them out")
        name = None if model is None else str(model)
        return open_servers(urls, name, chat_template, tokenizer_path=tokenizer_path, **settings)
    if model is None:
        raise UserError("no model is named: give the folder of a checkpoint, or the URL of a server")
    of_fastdeploy = {"options", "deadline_s"} if backend == "fastdeploy" else set()
    if tokenizer_path is not None or settings.keys() - of_fastdeploy:
        named = ["tokenizer_path"] * (tokenizer_path is not None) + sorted(settings.keys() - of_fastdeploy)
        raise UserError(f"{', '.join(named)} only apply to a server: give its URL, or leave them out")
    common: dict[str, Any] = {"chat_template": chat_template, "max_num_seqs": max_num_seqs, "seed": seed}
    if backend == "paddle":
        return open_checkpoint(model, dtype=dtype or "float32", **common)
    if dtype is not None:
        raise UserError(f"dtype {dtype!r} has no effect with FastDeploy, which computes in bfloat16: leave it out")
    return open_fastdeploy(model, **common, **settings)


def open_checkpoint(
    directory: str | Path,
    *,
    chat_template: str = "chatml",
    dtype: str = "float32",
    max_num_seqs: int = 256,
    seed: int = 0,
) -> OpenedGenerator:
    """The model in a checkpoint folder, behind the Paddle engine.

    What can be refused without the weights is refused before they are loaded. Raises UserError, one sentence, for a
    folder that is missing, of another architecture, without tokenizer or without the chat template asked for, whose
    weights are not whole, for a tokenizer with more tokens than the model, and for a dtype this device cannot run.
    With bfloat16 on a CPU the kernels round what they multiply; the weights stay float32.
    """
    from grrm.models.checkpoint import check_checkpoint, load_causal_lm

    directory = Path(directory)
    if dtype not in DTYPES:
        raise UserError(f"dtype {dtype!r} does not exist: use one of {', '.join(DTYPES)}")
    check_checkpoint(directory)
    _configure_paddle()
    import paddle

    of_weights, of_products = ("float32", dtype) if paddle.device.get_device() == "cpu" else (dtype, "float32")
    if of_products != "float32" and not cpu_kernels.available():
        raise UserError(f"dtype {dtype} needs the C++ kernels on a CPU, but {kernels().reason}: use float32.")
    tokenizer = load_tokenizer(directory)
    render = chat_renderer(chat_template, tokenizer, directory)
    model = load_causal_lm(directory, of_weights)
    _check_vocabulary(directory, tokenizer, model.config.vocab_size)
    from grrm.engine.paddle.engine import PaddleEngine

    engine = PaddleEngine(model, max_num_seqs=max_num_seqs, precision=of_products)
    return over_engine(engine, tokenizer, render, seed=seed)


def open_fastdeploy(
    directory: str | Path,
    *,
    chat_template: str = "chatml",
    max_num_seqs: int = 256,
    seed: int = 0,
    options: Mapping[str, object] | None = None,
    deadline_s: float | None = DEADLINE_S,
) -> OpenedGenerator:
    """The model in a checkpoint folder, behind PaddlePaddle's FastDeploy in worker processes of this one.

    `options` are those of `fastdeploy_options`; a batch takes at most `deadline_s` seconds, None as long as the caller
    waits. Raises UserError as `open_checkpoint` does, and as `FastDeployEngine.start`.
    """
    from grrm.engine.fastdeploy_engine import FastDeployEngine, check_installed
    from grrm.models.checkpoint import check_checkpoint

    directory, options = Path(directory), check_options(options or {})
    config = check_checkpoint(directory)
    vocab_size, max_positions = (_size(config, key, directory) for key in ("vocab_size", "max_position_embeddings"))
    check_installed()
    _configure_paddle()
    tokenizer = load_tokenizer(directory)
    render = chat_renderer(chat_template, tokenizer, directory)
    _check_vocabulary(directory, tokenizer, vocab_size)
    engine = FastDeployEngine.start(
        directory,
        vocab_size=vocab_size,
        max_positions=max_positions,
        max_num_seqs=max_num_seqs,
        deadline_s=deadline_s,
        options=options,
    )
    return over_engine(engine, tokenizer, render, seed=seed)


def over_engine(
    engine: Engine, tokenizer: Any, render: Callable[[str], str] = render_chatml, *, seed: int = 0
) -> OpenedGenerator:
    """A generator over an engine that is open already and the tokenizer of its model.

    Its `max_prompt_tokens` is the limit on prompts, if it has any. Raises UserError for a tokenizer without a token to
    stop at.
    """
    generator = EngineTextGenerator(engine, tokenizer, stop_token_ids=_stop_ids(tokenizer), seed=seed)
    longest = getattr(engine, "max_prompt_tokens", None)
    return OpenedGenerator(generator, render, longest, special_tokens=special_tokens(tokenizer))


def open_servers(
    urls: Sequence[str],
    model: str | None = None,
    chat_template: str = "chatml",
    *,
    tokenizer_path: str | Path | None = None,
    **settings: Any,
) -> OpenedGenerator:
    """A pool of OpenAI-compatible servers of one model; `settings` as for `OpenAITextGenerator`.

    The tokenizer folder is needed for the checkpoint's own chat template and for limits on prompts in tokens.
    Raises UserError for a malformed URL and as `load_tokenizer` and `chat_renderer` do.
    """
    from grrm.engine.openai_text import OpenAITextGenerator

    tokenizer = None if tokenizer_path is None else load_tokenizer(Path(tokenizer_path))
    render = chat_renderer(chat_template, tokenizer, None if tokenizer_path is None else Path(tokenizer_path))
    stop = (EOS_TEXT,) if chat_template == "chatml" else ()
    generator = OpenAITextGenerator(urls, model, stop=stop, tokenizer=tokenizer, **settings)
    known = () if tokenizer is None else special_tokens(tokenizer)
    return OpenedGenerator(generator, render, None, tokenizer is not None, known)


def _size(config: Mapping[str, Any], key: str, directory: Path) -> int:
    if not isinstance(config.get(key), int):
        raise UserError(f"'{directory}/config.json' names no {key}: get the checkpoint's own config.json again")
    return int(config[key])


def _configure_paddle() -> None:
    if "paddle" not in sys.modules:
        from grrm.startup import configure_process

        configure_process()


def _check_vocabulary(directory: Path, tokenizer: Any, vocab_size: int) -> None:
    if len(tokenizer) > vocab_size:
        raise UserError(
            f"the tokenizer in '{directory}' has {len(tokenizer)} tokens but the model only {vocab_size} "
            "(vocab_size in its config.json): use the tokenizer the model was trained with"
        )


def _stop_ids(tokenizer: Any) -> list[int]:
    """The tokenizer's eos, and <|im_end|> where it is a token of its own: stock Qwen tokenizers name another eos."""
    turn_end = tokenizer.convert_tokens_to_ids(EOS_TEXT)
    found = {tokenizer.eos_token_id, None if turn_end == tokenizer.unk_token_id else turn_end}
    return sorted(int(token_id) for token_id in found if token_id is not None)
