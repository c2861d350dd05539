"""How every entry point ends: a user's mistake is one line and exit status 2, a defect keeps its traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from grrm.errors import UserError
from grrm.rewards.failure_policy import RewardFailure

# What the core does without: import name -> the extra that installs it.
_EXTRAS = {
    "paddle": "train",
    "paddlenlp": "train",
    "tokenizers": "train",
    "safetensors": "train",
    "visualdl": "train",
    "sacrebleu": "metrics",
    "babel": "corpora",
    "polib": "corpora",
    "flask": "server",
    "waitress": "server",
    "matplotlib": "report",
    "jinja2": "report",
}


def run_main(main: Callable[[], int | None]) -> NoReturn:
    """Run `main` and exit with its status (None = 0).

    2: a UserError, or a package of an extra is not installed; 3: training stopped because rewards are missing, so mend
    the judge and resume; 130: interrupted from the keyboard. Each is one line on stderr.
    """
    try:
        status = main()
    except UserError as error:
        status = _complain(error, 2)
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        remedy = f"run `pip install 'paddle-grrm[{_EXTRAS[error.name]}]'`; `grrm doctor` lists what is missing"
        status = _complain(f"the package {error.name} is not installed: {remedy}.", 2)
    except RewardFailure as error:
        status = _complain(error, 3)
    except KeyboardInterrupt:
        status = _complain("interrupted", 130)
    _leave(status or 0)


def _leave(status: int) -> NoReturn:
    """Exit; a process of a distributed job skips interpreter teardown.

    There Paddle's process groups abort with a C++ stack trace when a peer happens to have left first, which would turn
    a finished job, or one clear sentence, into a crash.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    distributed = sys.modules.get("paddle.distributed")
    if distributed is not None and distributed.is_initialized():
        os._exit(status)
    sys.exit(status)


def _complain(message: object, status: int) -> int:
    print(f"error: {' '.join(str(message).split())}", file=sys.stderr, flush=True)
    return status
