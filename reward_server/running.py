"""From the first connection to an orderly end: what every HTTP server of this package does with its front."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

import click

from grrm.startup import freeze_gc

if TYPE_CHECKING:
    from .front import Front

logger = logging.getLogger(__name__)
LONGEST_TURN_S = 0.5
# Python's own 5 ms let a probe wait a third of a second for its turn behind 64 busy requests; this costs a few percent.
SWITCH_INTERVAL_S = 0.0005


def run_until_stopped(front: Front, drain_timeout_s: float, begin_stopping: Callable[[], None]) -> int:
    """Serves until SIGTERM or SIGINT; prints `listening on URL` once connections are accepted.

    Then `begin_stopping()` is called, after which no more requests may be taken. Returns how many connections are still
    owed an answer when all are answered, `drain_timeout_s` have passed, or a second signal has come.
    """
    stops = _Stops(front.pull_trigger)
    host, port = front.socket.getsockname()[:2]
    click.echo(f"listening on {front.scheme}://{f'[{host}]' if ':' in host else host}:{port}")
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    freeze_gc()  # or each collection during a request would also go through all that was imported
    while not stops.count:
        front.turn(LONGEST_TURN_S)
    begin_stopping()
    n_unanswered = _drain(front, stops, drain_timeout_s)
    if n_unanswered:
        logger.error("ended with %d requests unanswered", n_unanswered)
    return n_unanswered


def leave(code: int) -> None:
    """End the process at once, with what its threads do: a model's would make Python's teardown abort."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)


class _Stops:
    """Counts SIGTERM and SIGINT; the first asks for an orderly end, the second for an end at once."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.count = 0
        self._wake = wake
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self._wake()


def _drain(front: Front, stops: _Stops, allowed_s: float) -> int:
    """Answers what was accepted; returns how many connections are still owed an answer at the end."""
    ends = time.monotonic() + allowed_s
    unanswered = front.served()
    logger.info("stopping: %d connections are owed an answer, for which there are %g s", len(unanswered), allowed_s)
    while unanswered and stops.count < 2 and time.monotonic() < ends:
        front.turn(min(LONGEST_TURN_S, max(ends - time.monotonic(), 0.0)))
        served = front.served()
        unanswered = [channel for channel in unanswered if channel in served]
    return len(unanswered)
