"""Several processes behind one port: replicas of a model, each of one process or of several tensor ranks.

They are forked before Paddle is imported and inherit the listening socket, from which the first process of every
replica accepts connections. The process that forked them passes signals on and waits.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import FrameType

from grrm.startup import end_with_parent

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Process:
    """Tensor rank `rank` of `n_ranks`; `links` lead from rank 0 to each of the others, and from these to rank 0."""

    rank: int = 0
    n_ranks: int = 1
    links: Sequence[Connection] = ()


def fork_replicas(environments: Sequence[Mapping[str, str]], n_ranks: int) -> Process:
    """Returns in a new process for each of these environments; `n_ranks` one after the other are a replica.

    A replica that loses a process ends, and the others go on.

    Raises:
        SystemExit: in the process that called it, after all others have ended; its status is that of the first one that
            failed.
    """
    n_replicas = len(environments) // n_ranks
    running: dict[int, tuple[int, int]] = {}
    for replica in range(n_replicas):
        pipes = [Pipe() for _ in range(1, n_ranks)]
        endpoints = _free_endpoints(n_ranks) if n_ranks > 1 else []
        for rank in range(n_ranks):
            parent = os.getpid()
            pid = os.fork()
            if pid == 0:
                os.environ |= environments[replica * n_ranks + rank]
                _begin(parent, rank, endpoints, has_address=replica == 0)
                for number, ends in enumerate(pipes, 1):
                    ends[rank == 0].close()
                    if rank not in (0, number):
                        ends[0].close()
                return Process(rank, n_ranks, [pipes[rank - 1][1]] if rank else [near for near, _ in pipes])
            running[pid] = replica, rank
        for ends in pipes:
            ends[0].close()
            ends[1].close()
    raise SystemExit(_wait_for(running, n_replicas))


def _begin(parent: int, rank: int, endpoints: Sequence[str], *, has_address: bool) -> None:
    """Set up a new process: signals come from its parent alone, Paddle knows its rank, and one tells the address."""
    os.setsid()
    if rank == 0:  # the others end when it has answered what it accepted
        end_with_parent()
        if os.getppid() != parent:
            os._exit(1)
    if not has_address:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if endpoints:
        os.environ |= {
            "PADDLE_TRAINER_ID": str(rank),
            "PADDLE_TRAINERS_NUM": str(len(endpoints)),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
            "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
            "FLAGS_selected_gpus": "0",  # of those that are visible to it
        }


def _wait_for(running: dict[int, tuple[int, int]], n_replicas: int) -> int:
    """Wait until all processes have ended, by their ids replica and rank; returns the exit status."""
    status, lost = 0, set[int]()

    def end(pids: Sequence[int], number: int) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(number: int, frame: FrameType | None) -> None:
        end([pid for pid, (_, rank) in list(running.items()) if rank == 0], signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    while running:
        pid, how = os.wait()
        (replica, _), code = running.pop(pid), os.waitstatus_to_exitcode(how)
        if code and replica not in lost:
            lost.add(replica)
            status = status or (code if code > 0 else 1)
            end([other for other, (its, _) in running.items() if its == replica], signal.SIGKILL)
            if code < 0 or len(lost) < n_replicas:  # otherwise it has said itself why all ends
                cause = f"status {code}" if code > 0 else f"signal {-code}"
                others = n_replicas - len(lost)
                logger.error("replica %d of %d ended with %s: %d go on", replica, n_replicas, cause, others)
    return status


def _free_endpoints(count: int) -> list[str]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes]
