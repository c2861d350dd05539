"""Common parts of entry points: exit status (2 and a sentence for a user error), and NAME=VALUE options."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import Any, NoReturn

import click
import yaml

from grrm.errors import UserError, UserErrors
from grrm.rewards.failure_policy import RewardFailure
from grrm.strict_yaml import load_yaml

NEXT_LINE = "\n  "
GPU_EXTRA = "`paddle-grrm[gpu]` (docs/install.md)"
# What the core does without: import name -> the extra that installs it.
_EXTRAS = {
    **dict.fromkeys(("paddle", "paddlenlp", "tokenizers", "safetensors", "visualdl"), "cpu"),
    "sacrebleu": "metrics",
    "math_verify": "math",
    "gguf": "models",
    **dict.fromkeys(("flask", "waitress", "prometheus_client"), "server"),
    **dict.fromkeys(("matplotlib", "jinja2", "markupsafe"), "report"),
}

_OS_ERROR = re.compile(r"\(os error (\d+)\)")  # in an error of safetensors
# What files fail with that cannot be written on, which say no name, and those that cannot be opened.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG)

# What click 8.2 and later raise for a group without a subcommand; earlier ones print the help themselves.
_NO_SUBCOMMAND: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())


def run_main(main: Callable[[], int | None]) -> NoReturn:
    """Run `main` and exit with its status (None = 0).

    2: a UserError, a package of an extra is not installed, or a disk is full or a file may not be written; 3: training
    stopped because rewards are missing, so mend the judge and resume; 130: interrupted from the keyboard. Each is one
    line on stderr, and several mistakes in one place are a line each.
    """
    if isinstance(sys.stdout, TextIOWrapper):  # whose encoding a text of a run may not have, as GBK has no ä
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = main()
    except UserError as error:
        status = _complain(error, 2)
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        extra = _EXTRAS[error.name]
        on_gpu = f"; on a GPU {GPU_EXTRA}" if extra == "cpu" else ""
        remedy = f"run `pip install 'paddle-grrm[{extra}]'`{on_gpu}; `grrm doctor` lists what is missing"
        status = _complain(f"the package {error.name} is not installed: {remedy}.", 2)
    except _library_errors() as error:
        status = _complain("interrupted", 130) if _is_interrupt(error) else _complain(_sentence_of(error), 2)
    except RewardFailure as error:
        status = _complain(error, 3)
    except KeyboardInterrupt:
        status = _complain("interrupted", 130)
    _leave(status or 0)


def run_command(command: click.Command, name: str) -> NoReturn:
    """`run_main` of a command line; a mistake in it is one sentence. A group without a subcommand prints its help."""

    def invoke() -> int | None:
        try:
            return command.main(prog_name=name, standalone_mode=False)  # type: ignore[no-any-return]
        except _NO_SUBCOMMAND as error:
            click.echo(error.ctx.get_help())
            return 0
        except click.ClickException as error:
            context = getattr(error, "ctx", None)
            help_of = context.command_path if context else name
            raise UserError(f"{error.format_message().rstrip('.')}; see `{help_of} --help`.") from error
        except click.Abort as error:
            raise KeyboardInterrupt from error

    run_main(invoke)


def read_assignments(assignments: Sequence[str], kind: str) -> dict[str, Any] | None:
    """`NAME=VALUE` by name, each value as in an argument file; None without any.

    Raises UserError for one of another form, or given twice; `kind` is what it calls them, such as "judge option".
    """
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        name = name.replace("-", "_")
        if not (name and equals):
            raise UserError(f"{kind} {assignment!r} has no value: write it as NAME=VALUE")
        if name in values:
            raise UserError(f"{kind} {name} is given twice: leave out one of the two")
        try:
            values[name] = load_yaml(text)
        except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
            raise UserError(f"{kind} {assignment[:80]!r} has a value that cannot be read: quote it") from error
    return values or None


def _leave(status: int) -> NoReturn:
    """Exit; a process of a distributed job skips interpreter teardown.

    There Paddle's process groups abort with a C++ stack trace when a peer happens to have left first, which would turn
    a finished job, or one clear sentence, into a crash.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        status = status or _complain(_sentence_of(error), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter tries again as it ends
    sys.stderr.flush()
    distributed = sys.modules.get("paddle.distributed")
    if distributed is not None and distributed.is_initialized():
        os._exit(status)
    sys.exit(status)


def _is_interrupt(error: Exception) -> bool:
    """True for what C++ code makes of a KeyboardInterrupt, in the middle of an import or of a backward pass."""
    return isinstance(error.__cause__, KeyboardInterrupt) or "KeyboardInterrupt: <EMPTY MESSAGE>" in str(error)


def _library_errors() -> tuple[type[Exception], ...]:
    """Errors of libraries for files that fail, safetensors' own among them, and in place of KeyboardInterrupt."""
    safetensors = sys.modules.get("safetensors")
    errors = (OSError, ImportError, RuntimeError, SystemError)
    return errors if safetensors is None else (*errors, safetensors.SafetensorError)


def _sentence_of(error: Exception) -> str:
    """The user's mistake that an error is. Raises the error itself where it is none."""
    number, name = getattr(error, "errno", None), getattr(error, "filename", None)
    if not isinstance(error, OSError) and (match := _OS_ERROR.search(str(error))):
        number = int(match[1])
    file = "the output" if name is None else repr(str(name))
    if number in _FULL:
        return f"cannot write {file} ({os.strerror(number)}): make room, or write to another disk."
    if number in _REFUSED and name is not None:
        return f"cannot use {file} ({os.strerror(number)}): name a file that you may read and write."
    raise error


def _complain(message: object, status: int) -> int:
    lines = str(message).splitlines() if isinstance(message, UserErrors) else [str(message)]
    sentences = [" ".join(line.split()) for line in lines]
    print(f"error: {NEXT_LINE.join(sentences)}", file=sys.stderr, flush=True)
    return status
