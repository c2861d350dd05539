"""Loading Paddle and PaddleNLP for a command whose output is not a training log."""

from __future__ import annotations

import contextlib
import io

from grrm.startup import configure_process


def load_paddlenlp_quietly() -> None:
    """Keep PaddleNLP's log of the files it reads away from results, a server's log and the sentence of an error."""
    configure_process()
    with contextlib.redirect_stderr(io.StringIO()):  # paddle's advice about threads that are set already
        from grrm.training.trainer_log import quiet_paddlenlp

    quiet_paddlenlp("", is_first=False)
