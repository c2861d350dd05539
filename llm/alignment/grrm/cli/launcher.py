"""Paddle's launcher, whose output ends with why a rank failed: `python -m grrm.cli.launcher`, with the same options.

Paddle's own shows the first rank's log as it grows, then the command line of the rank that failed, and 3,000 characters
of that rank's log, which have mostly been shown. Its status is that of the first rank, even of one that it has ended,
and after a signal the number of that: 2 after Ctrl-C, as for a mistake in the file.
"""

from __future__ import annotations

import logging
import signal
import sys
from functools import partialmethod
from typing import Any, NoReturn

from paddle.distributed.launch.controllers.controller import ControllerBase
from paddle.distributed.launch.job.container import Container
from paddle.distributed.launch.job.pod import Pod
from paddle.distributed.launch.main import launch

from grrm.entry import NEXT_LINE
from grrm.parallel.lifeline import GONE

_LINES = 30  # of a log, in which a traceback usually fits


class _Output:
    """stdout, except for the sentences of a rank that fails, which are for the end."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def write(self, line: str) -> None:
        """Show a line of the first rank's log, or keep it."""
        if line.startswith("error: ") or (self.sentences and line.startswith(NEXT_LINE[1:])):
            self.sentences.append(line)
        else:
            sys.stdout.write(line)


def main() -> NoReturn:
    """Start the ranks, wait for them, and exit with 0, the status of the rank that failed, or 128 and a signal."""
    output, failed_ranks, stop = _Output(), Pod.failed_container, ControllerBase.signal_handler
    failed: list[Any] = []
    signals: list[int] = []

    def note_signal(controller: Any, number: int, frame: object) -> None:
        signals.append(number)
        stop(controller, number, frame)

    def note_failed(pod: Any) -> list[Any]:
        failed.extend(failed_ranks(pod))
        return failed

    ControllerBase.signal_handler = note_signal
    Pod.failed_container = note_failed
    Container.tail = lambda rank: None
    Container.logs = partialmethod(Container.logs, output)
    logging.getLogger("LAUNCH").addFilter(lambda record: not record.getMessage().startswith("Container failed"))
    status: Any = 0
    try:
        launch()
    except SystemExit as end:
        status = end.code
    sys.stdout.flush()
    if signals and not failed:
        print("error: interrupted", file=sys.stderr, flush=True)
        sys.exit(128 + signals[0])
    # Not one that only says that another is gone, which may have ended in the same second.
    first = next((rank for rank in failed if GONE not in end_of(rank)), failed[0] if failed else None)
    print("".join(output.sentences) if first is None else end_of(first), end="", file=sys.stderr, flush=True)
    sys.exit(status if first is None else first.exit_code)


def end_of(rank: Any) -> str:
    """The sentence with which a rank (Paddle's Container) failed, or the last lines of its log where it had none.

    Paddle appends to the logs of earlier runs, whose ends are not this one's.
    """
    with open(rank.outfile, encoding="utf-8", errors="replace") as log:
        log.seek(rank._log_start_offset)
        lines = log.readlines()[-_LINES:]
    sentences = [position for position, line in enumerate(lines) if line.startswith("error: ")]
    if sentences and rank.exit_code > 0:
        return "".join(lines[sentences[-1] :])
    how = f"with status {rank.exit_code}"
    if rank.exit_code < 0:
        name = signal.Signals(-rank.exit_code).name
        how = f"by {name}" + (", as where memory runs out" if name == "SIGKILL" else "")
    shown = lines if rank.rank else []  # those of the first rank have been shown
    return "".join([*shown, f"error: rank {rank.rank} ended {how}: its log is {rank.outfile}\n"])


if __name__ == "__main__":
    main()
