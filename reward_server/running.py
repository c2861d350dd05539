"""From a bound socket to an orderly end: what every HTTP server of this package does."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import click

from grrm.startup import freeze_gc

from .access import bind, read_token
from .application import Application
from .front import Front
from .logs import configure_logging
from .settings import HttpSettings
from .tls import server_context

logger = logging.getLogger(__name__)
LONGEST_TURN_S = 0.5
# Python's own 5 ms let a probe wait a third of a second for its turn behind 64 busy requests; this costs a few percent.
SWITCH_INTERVAL_S = 0.0005
GC_THRESHOLD = 20_000  # a request of 256 candidates makes some 2,000 objects, none of them in a cycle


@contextmanager
def listening(settings: HttpSettings) -> Iterator[tuple[socket.socket, str | None]]:
    """The bound socket and the token of a server whose model is yet to be loaded.

    That may take minutes: until then early clients wait, and a port in use or a wrong file is a UserError at once.
    """
    configure_logging(settings.log_file, settings.log_format, settings.log_level)
    server_context(settings.certfile, settings.keyfile)
    token = read_token(settings.token_file, settings.token_env)
    with bind(settings.host, settings.port, token) as listener:
        yield listener, token


def serve_until_stopped(
    app: Application,
    settings: HttpSettings,
    listener: socket.socket,
    drain_timeout_s: float,
    *,
    is_shared: bool = False,
) -> None:
    """Serves until SIGTERM or SIGINT; prints `listening on URL` once connections are accepted.

    Then it takes no more requests and ends once those it has are answered. Raises SystemExit 1 where `drain_timeout_s`
    or a second signal ended it before. With `is_shared` other processes accept from the same socket.
    """
    front = Front(app, settings, listener, is_shared=is_shared)
    stops = _Stops(front.pull_trigger)
    host, port = front.socket.getsockname()[:2]
    click.echo(f"listening on {front.scheme}://{f'[{host}]' if ':' in host else host}:{port}")
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    freeze_gc(GC_THRESHOLD)  # or each collection during a request would also go through all that was imported
    while not stops.count:
        front.turn(LONGEST_TURN_S)
    app.is_stopping = True
    n_unanswered = _drain(front, stops, drain_timeout_s)
    if n_unanswered:
        logger.error("ended with %d requests unanswered", n_unanswered)
    if n_unanswered or not app.is_idle():  # the threads of a model would make Python's teardown abort
        logging.shutdown()
        sys.stdout.flush()
        os._exit(1 if n_unanswered else 0)


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
    level = logging.WARNING if unanswered else logging.INFO
    logger.log(level, "stopping: %d connections are owed an answer, within %g s", len(unanswered), allowed_s)
    while unanswered and stops.count < 2 and time.monotonic() < ends:
        front.turn(min(LONGEST_TURN_S, max(ends - time.monotonic(), 0.0)))
        served = front.served()
        unanswered = [channel for channel in unanswered if channel in served]
    return len(unanswered)
