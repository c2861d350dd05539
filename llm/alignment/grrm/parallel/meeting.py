"""Waiting for the other processes of a job, for as long as it takes and no longer than is allowed."""

from __future__ import annotations

import time
from typing import Protocol

from grrm.errors import UserError

_KEY = "grrm/arrivals"
_SHORTEST_NAP_S, _LONGEST_NAP_S = 0.0005, 0.05


class Store(Protocol):
    """The part of Paddle's TCPStore that a meeting needs."""

    def add(self, key: str, amount: int) -> int:
        """Add to a counter that all processes share; its new value."""
        ...


class Meetings:
    """Meetings of `world_size` processes, counted in one shared counter; each process owns one such object.

    Gloo, Paddle's transport between CPU processes, gives up on a collective after 30 seconds, and that cannot be set.
    Ranks that judge, roll out or save can be minutes apart, so they meet here before they enter a collective.
    """

    def __init__(self, store: Store, world_size: int) -> None:
        self.store, self.world_size = store, world_size
        self._held = 0

    def wait(self, timeout_s: float) -> None:
        """Return when every process has called this as often as we have. Raises UserError after `timeout_s`."""
        self._held += 1
        give_up, nap_s = time.monotonic() + timeout_s, _SHORTEST_NAP_S
        present = self.store.add(_KEY, 1)
        while present < self._held * self.world_size:
            if time.monotonic() >= give_up:
                missing = self._held * self.world_size - present
                raise UserError(
                    f"{missing} of {self.world_size} processes did not arrive within {timeout_s:g} s: one of them is "
                    "stuck or lost, look at the end of each rank's log and start again"
                )
            time.sleep(nap_s)
            nap_s = min(nap_s * 1.5, _LONGEST_NAP_S)
            present = self.store.add(_KEY, 0)


_job: Meetings | None = None


def meet(world_size: int, timeout_s: float) -> None:
    """Wait until every process of this distributed job is here; a collective must follow at once.

    The counter lives in the first process: it must not end while another still looks, which the collective ensures.
    """
    global _job
    if _job is None:
        from paddle.base import core

        _job = Meetings(core.create_or_get_global_tcp_store(), world_size)
    _job.wait(timeout_s)


def barrier(world_size: int, timeout_s: float = 1800.0) -> None:
    """Wait for every process of this job, however far apart they are; returns at once when there is only one."""
    if world_size > 1:
        import paddle.distributed as dist

        meet(world_size, timeout_s)
        dist.barrier()
