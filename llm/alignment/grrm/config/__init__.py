"""Arguments of the training scripts: keys and defaults, checks that need no paddle, and the argument classes.

Everything here is importable without paddle; `RLArguments` and `SFTArguments` extend PaddleNLP's TrainingArguments
and import it when they are first asked for.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from grrm.config.checks import Launch
from grrm.config.load import Prepared, launched_processes, prepare

if TYPE_CHECKING:
    from grrm.config.training_arguments import RLArguments, SFTArguments

__all__ = ["Launch", "Prepared", "RLArguments", "SFTArguments", "load_arguments", "load_sft_arguments", "prepare"]


def load_arguments(yaml_path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> RLArguments:
    """Read and check an RL argument file, then hand it to PaddleNLP, which may join the process group.

    `overrides` are `--key value` or `--key=value` from the command line. Raises UserError, one sentence, before any
    process group is started or model loaded.
    """
    _check_early("RL", yaml_path, overrides)
    from grrm.config import training_arguments

    return training_arguments.build(training_arguments.RLArguments, "RL", yaml_path, overrides)


def load_sft_arguments(yaml_path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> SFTArguments:
    """`load_arguments` for run_sft.py."""
    _check_early("SFT", yaml_path, overrides)
    from grrm.config import training_arguments

    return training_arguments.build(training_arguments.SFTArguments, "SFT", yaml_path, overrides)


def _check_early(kind: str, yaml_path: str | os.PathLike[str], overrides: Sequence[str]) -> None:
    """Tell most mistakes before the seconds that importing paddle takes; the device is looked at after that."""
    prepare(kind, yaml_path, overrides, Launch("cpu", launched_processes()), check_on_device=False)


def __getattr__(name: str) -> Any:
    if name in ("RLArguments", "SFTArguments"):
        from grrm.config import training_arguments

        return getattr(training_arguments, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
