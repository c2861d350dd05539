"""The command line of a training script: an argument file and overrides, or a question for help."""

from __future__ import annotations

from collections.abc import Sequence

from grrm.config.document import help_text
from grrm.config.load import C, load_config
from grrm.config.stages import stage_of
from grrm.errors import UserError


def read_command_line(stage: type[C], words: Sequence[str]) -> C | None:
    """The configuration that `words` name; None once help that was asked for has been printed.

    Raises UserError with all mistakes, and, below the help, when no file is named.
    """
    if not words or {"-h", "--help"} & set(words):
        print(help_text(stage_of(stage)), end="")
    if not words:
        raise UserError(f"no argument file was given: {stage_of(stage).script} ARGUMENTS.yaml [--key value ...]")
    return None if {"-h", "--help"} & set(words) else load_config(stage, words[0], words[1:])
