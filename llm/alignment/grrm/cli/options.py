"""Options that several commands share, and what opens a generator from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import click

from grrm.errors import UserError


class FiniteRange(click.FloatRange):
    """A range without NaN, which click finds within any bounds, and without infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Fails as click does for one that is not finite or out of range."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


FILE = click.Path(path_type=Path)
COUNT = click.IntRange(min=1)
# Spelt out, so that `--help` need not import an engine; a test compares them with the engine's own lists.
CHAT_TEMPLATES = ("chatml", "checkpoint", "none")
DTYPES = ("float32", "bfloat16")
Command = TypeVar("Command", bound=Callable[..., Any])

_INPUT = (
    click.option("--src-lang", metavar="LANG", help="Source language of every row.  [default: column src_lang]"),
    click.option("--trg-lang", metavar="LANG", help="Target language of every row.  [default: column trg_lang]"),
    click.option("--out", type=FILE, help="A .jsonl or .parquet file.  [default: a table; JSON lines in a pipe]"),
)
_MODEL = (
    click.option("--model", help="Folder of a checkpoint; with --url the model's name there."),
    click.option("--url", "urls", multiple=True, help="OpenAI-compatible server to ask; several are a pool."),
    click.option("--tokenizer", type=FILE, help="With --url: folder of the model's tokenizer."),
    click.option("--token-env", metavar="NAME", help="With --url: environment variable with the bearer token."),
    click.option("--deadline", type=FiniteRange(0, min_open=True), help="With --url: seconds per round of a batch."),
    click.option(
        "--chat-template", type=click.Choice(CHAT_TEMPLATES), default="chatml", show_default=True, help="Chat format."
    ),
    click.option(
        "--dtype",
        type=click.Choice(DTYPES),
        default="float32",
        show_default=True,
        help="Of the model.",
    ),
    click.option("--batch-rows", type=COUNT, default=64, show_default=True, help="Rows generated together."),
    click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Of every draw."),
)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The options that say which model answers."""

    model: str | None
    urls: tuple[str, ...]
    tokenizer: Path | None
    token_env: str | None
    deadline: float | None
    dtype: str

    def open(self, chat_template: str) -> Any:
        """The opened generator. Raises UserError as `open_generator` does, or for a token that is not there."""
        from grrm.engine.open import open_generator
        from grrm.rl.quiet_loading import load_paddlenlp_quietly

        if self.urls:
            refuse_given(("dtype",), "with --url, as the model's server loads the weights")
            settings = {"token": self._token(), "deadline_s": self.deadline, "tokenizer_path": self.tokenizer}
            given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
            if self.tokenizer is not None:
                load_paddlenlp_quietly()
            return open_generator(self.model, urls=self.urls, chat_template=chat_template, **given)
        if self.model is None:
            raise UserError("no model is named: give --model FOLDER, or --url of a server")
        if self.tokenizer or self.token_env or self.deadline:
            raise UserError("--tokenizer, --token-env and --deadline are for servers: add --url, or leave them out")
        if find_spec("paddle") is None or find_spec("safetensors") is None:
            raise UserError("a checkpoint needs Paddle: `pip install 'paddle-grrm[train]'`, or ask a server with --url")
        from grrm.engine.whole_checkpoint import check_checkpoint

        check_checkpoint(Path(self.model))  # before paddle is loaded, which takes its time
        load_paddlenlp_quietly()
        return open_generator(self.model, chat_template=chat_template, dtype=self.dtype)

    def _token(self) -> str | None:
        from grrm.rewards.bearer import token_from_env

        name = self.token_env
        return None if name is None else token_from_env(name, f"environment variable {name} of --token-env")


def input_options(command: Command) -> Command:
    """--src-lang, --trg-lang and --out."""
    return _add(_INPUT, command)


def model_options(command: Command) -> Command:
    """The options of `ModelOptions`, the chat template, the batch size and the seed."""
    return _add(_MODEL, command)


def sampling_options(temperature: float, max_new_tokens: int, retry: int) -> Callable[[Command], Command]:
    """--temperature, --top-p, --max-new-tokens and --retry with these defaults."""
    options = (
        click.option("--temperature", type=FiniteRange(min=0), default=temperature, show_default=True),
        click.option("--top-p", type=FiniteRange(0, 1, min_open=True), default=1.0, show_default=True),
        click.option("--max-new-tokens", type=COUNT, default=max_new_tokens, show_default=True),
        click.option(
            "--retry", type=click.IntRange(min=0), default=retry, show_default=True, help="Rounds for failed replies."
        ),
    )
    return lambda command: _add(options, command)


def refuse_given(names: tuple[str, ...], reason: str) -> None:
    """Raises UserError for the first of these options that stands on the command line: it would have no effect."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise UserError(f"--{name.replace('_', '-')} has no effect {reason}; leave it out")


def take_model_options(options: dict[str, Any]) -> ModelOptions:
    """Remove the fields of `ModelOptions` from a command's options and return them as one."""
    return ModelOptions(**{name: options.pop(name) for name in ModelOptions.__dataclass_fields__})


def _add(options: tuple[Callable[[Command], Command], ...], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
