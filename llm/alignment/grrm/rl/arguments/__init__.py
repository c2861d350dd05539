"""Arguments of the training scripts: keys and defaults, checks that need no paddle, and the argument classes.

Everything here is importable without paddle; `RLArguments` and `SFTArguments` extend PaddleNLP's TrainingArguments
and import it when they are first asked for.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from grrm.rl.arguments.checks import Launch
from grrm.rl.arguments.load import Prepared, prepare

if TYPE_CHECKING:
    from grrm.rl.arguments.training import RLArguments, SFTArguments

__all__ = ["Launch", "Prepared", "RLArguments", "SFTArguments", "load_arguments", "load_sft_arguments", "prepare"]


def load_arguments(yaml_path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> RLArguments:
    """Read and check an RL argument file, then hand it to PaddleNLP, which may join the process group.

    `overrides` are `--key value` or `--key=value` from the command line. Raises UserError, one sentence, before any
    process group is started or model loaded.
    """
    prepare("RL", yaml_path, overrides)  # most mistakes are told before the seconds that importing paddle takes
    from grrm.rl.arguments import training

    return training.build(training.RLArguments, "RL", yaml_path, overrides)


def load_sft_arguments(yaml_path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> SFTArguments:
    """`load_arguments` for run_sft.py."""
    prepare("SFT", yaml_path, overrides)
    from grrm.rl.arguments import training

    return training.build(training.SFTArguments, "SFT", yaml_path, overrides)


def __getattr__(name: str) -> Any:
    if name in ("RLArguments", "SFTArguments"):
        from grrm.rl.arguments import training

        return getattr(training, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
