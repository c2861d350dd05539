"""Options that several commands share, and what opens a generator from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from grrm.engine.options import BACKENDS, DTYPES, FASTDEPLOY, SERVER_WAIT_S, SERVERS, OptionNames, choose_back_end
from grrm.entry import read_assignments
from grrm.errors import UserError
from grrm.gqm.chat import CHAT_TEMPLATES, SERVER_TEMPLATE


class FiniteRange(click.FloatRange):
    """A range without NaN, which click finds within any bounds, and without infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Fails as click does for one that is not finite or out of range."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class CommandGroup(click.Group):
    """A group whose help has the first sentence of each command, which click would cut off after half a line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by name."""
        commands = {name: self.commands[name] for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(limit=200)) for name, command in commands.items()])


class JudgeName(click.ParamType):  # type: ignore[type-arg]
    """A judge's name, or a function of the user's own, `module:function`."""

    name = "judge"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name. Raises UserError for one that is not known."""
        from grrm.judges.registry import check_judge_name

        check_judge_name(str(value))
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names that begin like this."""
        from grrm.judges.registry import judge_names

        return [CompletionItem(name) for name in judge_names() if name.startswith(incomplete)]


class JudgeOption(click.Option):
    """`--judge`, whose help is what the judges declare."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The option and its help; only here are the judges imported."""
        from grrm.judges.registry import judge_help

        self.help = f"{judge_help()}; or a function of your own, module:function or FILE.py:function."
        return super().get_help_record(ctx)


FILE = click.Path(path_type=Path)
COUNT = click.IntRange(min=1)
# What a user of a command calls the options of a model.
NAMES = OptionNames(
    {
        "model": "--model",
        "urls": "--url",
        "tokenizer": "--tokenizer",
        "token": "--token-env",
        "deadline": "--deadline",
        "backend": "--backend",
        "fastdeploy_options": "--fastdeploy-option",
        "dtype": "--dtype",
    }
)
Command = TypeVar("Command", bound=Callable[..., Any])


def option_group(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Return a decorator that adds the options, which come in this order in the help of a command."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


language_options = option_group(
    click.option("--src-lang", metavar="LANG", help="Source language of every row.  [default: column src_lang]"),
    click.option("--trg-lang", metavar="LANG", help="Target language of every row.  [default: column trg_lang]"),
)
input_options = option_group(
    language_options,
    click.option("--out", type=FILE, help="A .jsonl or .parquet file.  [default: a table; JSON lines in a pipe]"),
)
# Of `ModelOptions`, the chat template, the batch size and the seed.
model_options = option_group(
    click.option("--model", help="Folder of a checkpoint, or its name on a hub; with --url the model's name there."),
    click.option("--url", "urls", multiple=True, help="OpenAI-compatible server; repeat for a pool."),
    click.option("--tokenizer", type=FILE, help="With --url: folder of the model's tokenizer."),
    click.option("--token-env", metavar="NAME", help="With --url: environment variable with the bearer token."),
    click.option(
        "--backend", type=click.Choice(BACKENDS), default="paddle", show_default=True, help="Engine for a checkpoint."
    ),
    click.option(
        "--fastdeploy-option",
        "fastdeploy_options",
        multiple=True,
        metavar="NAME=VALUE",
        help="With --backend fastdeploy: an option of it, such as tensor_parallel_size=2.",
    ),
    click.option(
        "--deadline",
        type=FiniteRange(0, min_open=True),
        help="With --url or --backend fastdeploy: seconds per round of a batch.",
    ),
    click.option(
        "--chat-template",
        type=click.Choice((*CHAT_TEMPLATES, SERVER_TEMPLATE)),
        default="chatml",
        show_default="as the folder records, else chatml",
        help="Chat format; server: the chat endpoint of --url.",
    ),
    click.option(
        "--dtype",
        type=click.Choice(DTYPES),
        default="auto",
        show_default=True,
        help="Of the model; auto: the checkpoint's on a GPU, float32 on a CPU.",
    ),
    click.option("--batch-rows", type=COUNT, default=64, show_default=True, help="Rows per batch."),
    click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Sampling seed."),
)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The options that say which model answers."""

    model: str | None
    urls: tuple[str, ...]
    tokenizer: Path | None
    token_env: str | None
    deadline: float | None
    backend: str
    fastdeploy_options: tuple[str, ...]
    dtype: str

    def open(self, chat_template: str, *, marks_unanswered: bool = False) -> Any:
        """The opened generator; with `marks_unanswered` a prompt that no server answers does not raise but is marked.

        Raises UserError as `open_generator` does, or for a token that is not there.
        """
        from grrm.engine.open import open_generator

        back_end = choose_back_end(explicit_model_options(), NAMES, self.backend)
        if chat_template == SERVER_TEMPLATE and (back_end != SERVERS or self.tokenizer is not None):
            raise UserError("--chat-template server is the chat endpoint of --url: give that, and no --tokenizer")
        settings: dict[str, Any] = {"chat_template": chat_template, "quiet": True, "deadline_s": self.deadline}
        if back_end == SERVERS:
            settings |= {"unanswered": "mark"} if marks_unanswered else {}
            settings |= {"token": self._token(), "tokenizer_path": self.tokenizer}
        elif back_end == FASTDEPLOY:
            options = read_assignments(self.fastdeploy_options, "FastDeploy option")
            settings |= {"backend": FASTDEPLOY, "options": options}
        else:
            settings |= {"dtype": self.dtype}
        return open_generator(self.model, urls=self.urls, **settings)

    def served(self) -> str | None:
        """The name of the model that the servers of --url have; None if there are none. Raises NoAnswer."""
        from grrm.engine.openai_wire import served_model

        return served_model(self.urls, SERVER_WAIT_S, self._token()) if self.urls else None

    def _token(self) -> str | None:
        from grrm.http_client.exchange import token_from_env

        name = self.token_env
        return None if name is None else token_from_env(name, f"environment variable {name} of --token-env")


def sampling_options(max_new_tokens: int, retry: int) -> Callable[[Command], Command]:
    """--temperature, --top-p, --max-new-tokens and --retry, of which the last two have these defaults."""
    return option_group(
        click.option("--temperature", type=FiniteRange(min=0), default=0.0, show_default=True),
        click.option("--top-p", type=FiniteRange(0, 1, min_open=True), default=1.0, show_default=True),
        click.option("--max-new-tokens", type=COUNT, default=max_new_tokens, show_default=True),
        click.option(
            "--retry", type=click.IntRange(min=0), default=retry, show_default=True, help="Retries of failed replies."
        ),
    )


def refuse_ineffective(names: tuple[str, ...], reason: str) -> None:
    """Raises UserError for the first of these options that stands on the command line: it would have no effect."""
    for name in names:
        flag = f"--{name.replace('_', '-')}"
        if is_explicit(flag):
            raise UserError(f"{flag} has no effect {reason}; leave it out")


def explicit_model_options() -> list[str]:
    """The options of a model, by what `grrm.engine.options` calls them, that stand on the command line."""
    return [option for option, flag in NAMES.names.items() if is_explicit(flag)]


def is_explicit(flag: str) -> bool:
    """True for an option that stands on the command line."""
    context = click.get_current_context()
    names = [parameter.name for parameter in context.command.params if flag in parameter.opts and parameter.name]
    return any(context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE for name in names)


def take_model_options(options: dict[str, Any]) -> ModelOptions:
    """Remove the fields of `ModelOptions` from a command's options and return them as one."""
    return ModelOptions(**{name: options.pop(name) for name in ModelOptions.__dataclass_fields__})
