"""The command line of a training script: an argument file and overrides, or a question for help."""

from __future__ import annotations

from collections.abc import Sequence

from grrm.config.document import help_text
from grrm.config.load import C, load_config
from grrm.config.stages import stage_of
from grrm.errors import UserError


def read_command_line(stage: type[C], words: Sequence[str], n_processes: int | None = None) -> C | None:
    """The configuration that `words` name; None once help that was asked for has been printed.

    It is checked for the processes that Paddle's launcher has started, or `n_processes` that it is to start.

    Raises UserError with all mistakes, and when the first word names no file: without any word, below the help.
    """
    asks_for_help = bool({"-h", "--help"} & set(words))
    if not words or asks_for_help:
        print(help_text(stage_of(stage)), end="")
    if asks_for_help:
        return None
    if not words or words[0].startswith("--"):
        raise UserError(f"no argument file was given: {stage_of(stage).script} ARGUMENTS.yaml [--key value ...]")
    return load_config(stage, words[0], words[1:], n_processes)
