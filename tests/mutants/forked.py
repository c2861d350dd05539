"""Work in forked children: they start with everything imported, and take what they break with them."""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Work = Callable[[Path], None]


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder of its own for each child, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="grrm-mutants-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def run_forked(work: Work, folder: Path, cpu_s: float, wall_s: float) -> bool:
    """Run `work(folder)` in a child, which passes its results on as files; its output is in `folder / "log"`.

    Args:
        work: What to do there.
        folder: Where the child may write.
        cpu_s: CPU seconds that the child, and each process that it starts, may use.
        wall_s: Seconds after which the child is killed with the processes of its group.

    Returns:
        Whether it came to its end: no signal, no exception, no deadline.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _be_the_child(work, folder, cpu_s)
    try:
        watched = os.pidfd_open(child)
        try:
            ended = bool(select.select([watched], [], [], wall_s)[0])
        finally:
            os.close(watched)
        # Until it is waited for, the number of the group cannot be somebody else's.
        _kill_group(child)
    except BaseException:  # an interrupt too: no child may outlive it
        _kill_group(child)
        os.waitpid(child, 0)
        raise
    return os.waitpid(child, 0)[1] == 0 and ended


def _kill_group(child: int) -> None:
    for kill in (os.killpg, os.kill):  # it may not have made its group yet
        try:
            kill(child, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _be_the_child(work: Work, folder: Path, cpu_s: float) -> None:
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s) + 1, int(cpu_s) + 1))
        log = os.open(folder / "log", os.O_CREAT | os.O_WRONLY, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        os.environ["TMPDIR"] = str(folder)
        tempfile.tempdir = str(folder)
        work(folder)
        status = 0
    except BaseException:  # noqa: BLE001 - whatever it is, the child must not go on as a second parent
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
