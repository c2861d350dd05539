"""The HTTP front: waitress, with limits on what a connection may hold and for how long, and an orderly end.

One thread reads and writes all connections; only a request that is there as a whole takes a thread of its own. So a
slow client holds a socket and what it has sent, and these are limited: a token is checked before a body is taken, a
header, a body and the taking of an answer have deadlines.

A connection too many closes the oldest one that is not being served. A connection has one request at a time: where a
client sends more before it has its answer, the connection ends with the answers that are due.
"""

from __future__ import annotations

import contextlib
import logging
import math
import resource
import socket
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import TcpWSGIServer
from waitress.task import ErrorTask, ThreadedTaskDispatcher

from .access import allowed_hosts
from .application import Application
from .parsing import MAX_HEADER_BYTES, RequestParser, Unread
from .problems import RequestProblem
from .settings import HttpSettings
from .tls import TlsSocket, server_context

logger = logging.getLogger(__name__)
SPARE_THREADS = 4  # beyond the scoring requests, for probes and refusals
RECEIVE_BYTES = 2**16  # waitress's default is 8 KiB: fifty turns of its loop for a trainer's request
IDLE_S = 120.0  # to send another request, or to take another part of an answer
LINGER_S = 10.0  # to stop sending a body that was refused; closing earlier would make the client miss the answer
MAINTENANCE_S = 0.5
ACCEPTS_PER_TURN = 64
YIELD_S, MOST_YIELD_S = 0.0005, 0.005  # before a connection is accepted, for each that is open
IN_MEMORY = 2**40
OTHER_FILES = 128  # open files beyond connections and the bodies that wait on disk


class _JsonErrorTask(ErrorTask):  # type: ignore[misc]
    def execute(self) -> None:
        error, app = self.request.error, self.channel.server.app
        app.metrics.add("grrm_requests_total", route="other", code=str(error.code))
        logger.warning("refused by its header: %d %s", error.code, error.reason)
        code = "invalid_api_key" if error.code == 401 else None
        answer = app.answer_problem(RequestProblem(error.code, error.body, code=code))
        self.status, self.response_headers = f"{error.code} {error.reason}", list(answer.headers)
        self.set_close_on_finish()
        self.write(answer.get_data())


class Channel(HTTPChannel):  # type: ignore[misc]
    """A connection that knows since when it has been in its state."""

    error_task_class = _JsonErrorTask

    def __init__(self, server: Front, *args: Any, **options: Any) -> None:
        self.parser_class = self._next_request
        self.since = self.opened = time.monotonic()
        self.has_been_served = self.is_refused = self.is_lingering = False
        self._serving: list[HTTPRequestParser] = []  # of `service`, which returns after the client has its answer
        self._begun: HTTPRequestParser | None = None
        super().__init__(server, *args, **options)

    @property
    def is_served(self) -> bool:
        """True if a request waits, is worked on or has an answer that is not yet sent."""
        return bool(self.requests or self.total_outbufs_len or self._serving)

    def seconds_allowed(self, settings: HttpSettings) -> float:
        """The seconds for which it may stay as it is; each part of an answer that the client takes begins them anew."""
        if self.total_outbufs_len:
            return IDLE_S
        if self.requests or self._serving:
            return math.inf
        if self.is_lingering:
            return LINGER_S
        if self.request is not None and self.request.headers_finished:
            return settings.body_timeout_s
        if self.request is not None or not self.has_been_served:
            return settings.header_timeout_s
        return IDLE_S

    @property
    def is_pipelined(self) -> bool:
        """True if the client did not wait for its answers."""
        return isinstance(self.request, Unread)

    def readable(self) -> bool:
        """True if there is more to read: nothing of a client that did not wait."""
        return not self.is_pipelined and super().readable()

    def _next_request(self, adjustments: Adjustments) -> HTTPRequestParser:
        """One may be sent while the thread of the one before it ends; what is sent behind that is thrown away."""
        if len(self.requests) > 1:
            return Unread(adjustments)
        server = self.server
        return RequestParser(server.app.refusal, server.is_host_allowed, server.settings.max_body_bytes, adjustments)

    def received(self, data: bytes) -> bool:
        done: bool = super().received(data)
        if self.request is not self._begun:
            self._begun, self.since = self.request, time.monotonic()
        return done

    def service(self) -> None:
        self.is_refused = self.requests[0].error is not None
        self._serving.append(self.requests[0])
        super().service()
        if self.is_pipelined and not self.requests:
            self.close_when_flushed = True
            self.server.pull_trigger()
        self.since, self.has_been_served = time.monotonic(), True
        self._serving.pop()

    def write_soon(self, data: bytes) -> int:
        """The thread waits here while too much is not taken, until the connection is closed for that."""
        if not self.total_outbufs_len:
            self.since = time.monotonic()
        n_bytes: int = super().write_soon(data)
        return n_bytes

    def _flush_some(self, do_close: bool = True) -> bool:
        has_sent: bool = super()._flush_some(do_close=do_close)
        if has_sent:
            self.since = time.monotonic()
        return has_sent

    def handle_write(self) -> None:
        """After a refusal only the sending side is closed: what still arrives is thrown away for a while."""
        super().handle_write() if not (self.is_refused and self.close_when_flushed) else self._refuse()

    def _refuse(self) -> None:
        self._flush_exception(self._flush_some)
        if self.will_close:
            self.handle_close()
        elif not self.total_outbufs_len:
            self.close_when_flushed, self.is_lingering, self.since = False, True, time.monotonic()
            with contextlib.suppress(OSError):  # gone already
                self.socket.shutdown(socket.SHUT_WR)

    def handle_read(self) -> None:
        if isinstance(self.socket, TlsSocket) and not self.socket.fill(RECEIVE_BYTES):
            return
        if not self.is_lingering:
            super().handle_read()
            return
        try:
            self.recv(self.adj.recv_bytes)
        except OSError:
            self.handle_close()


class _Once:
    """A task that is forgotten as soon as it is begun: a thread keeps its last one for as long as it is idle."""

    def __init__(self, task: Any) -> None:
        self._task = task

    def service(self) -> None:
        task, self._task = self._task, None
        task.service()

    def cancel(self) -> None:
        self._task.cancel()


class _Dispatcher(ThreadedTaskDispatcher):  # type: ignore[misc]
    def add_task(self, task: Any) -> None:
        super().add_task(_Once(task))


class Front(TcpWSGIServer):  # type: ignore[misc]
    """Serves `app` on `listener`, with what `settings` say of connections.

    The application's `refusal` is asked about every request once its header is there, before its body is taken.
    """

    def __init__(
        self, app: Application, settings: HttpSettings, listener: socket.socket, *, is_shared: bool = False
    ) -> None:
        self.app, self.settings, self._is_shared = app, settings, is_shared
        self.channel_class = Channel
        self.max_connections = within_file_limit(settings.max_connections)
        self.is_host_allowed = allowed_hosts(listener.getsockname()[0], settings.allowed_hosts)
        self._tls = server_context(settings.certfile, settings.keyfile)
        self.next_maintenance = 0.0
        self._closing: list[Channel] = []
        adjustments = Adjustments(
            sockets=[listener],
            threads=settings.max_in_flight + SPARE_THREADS,
            connection_limit=2 * self.max_connections + OTHER_FILES,  # never reached: it would stop the accepting
            max_request_body_size=2 * settings.max_body_bytes,  # up to here the application refuses a chunked body
            max_request_header_size=MAX_HEADER_BYTES,
            recv_bytes=RECEIVE_BYTES,
            channel_request_lookahead=1,  # goes on reading while a request is served, and so notices who hangs up
            outbuf_overflow=IN_MEMORY,  # an answer is there already; on disk it would be lost where that is full
            asyncore_use_poll=True,
            ident=None,
            url_scheme=self.scheme,
        )
        dispatcher = _Dispatcher()
        dispatcher.set_thread_count(adjustments.threads)
        info = (listener.family, listener.type, listener.proto, listener.getsockname())
        super().__init__(
            app.flask, {}, True, listener, dispatcher=dispatcher, adj=adjustments, sockinfo=info, bind_socket=False
        )

    def turn(self, timeout_s: float) -> None:
        """Waits up to `timeout_s` for something to do, and does it."""
        wasyncore.loop(timeout=timeout_s, map=self._map, use_poll=True, count=1)
        now = time.monotonic()
        if now >= self.next_maintenance:
            self.next_maintenance = now + MAINTENANCE_S
            self._close_late(now)
        while self._closing:  # after the turn: a socket opened in it must not get the number of one closed in it
            self._closing.pop().handle_close()

    def served(self) -> list[Channel]:
        """The connections with a request that waits, is worked on or has an answer that is not yet sent."""
        return [channel for channel in self.active_channels.values() if channel.is_served]

    def maintenance(self, now: float) -> None:
        """Waitress's own goes by the wall clock, which may jump; `turn` does its work."""

    @property
    def scheme(self) -> str:
        """The scheme of its addresses."""
        return "http" if self._tls is None else "https"

    def accept(self) -> tuple[socket.socket | TlsSocket, Any] | None:
        """A new connection, None where none waits; under TLS the handshake is still to come."""
        accepted: tuple[socket.socket, Any] | None = super().accept()
        if accepted is None or self._tls is None:
            return accepted
        return TlsSocket(accepted[0], self._tls), accepted[1]

    def handle_accept(self) -> None:
        """Takes what waits: a turn costs the same for one connection as for many, and a crowd would hold up others."""
        if self._is_shared:  # the process with the fewest connections comes first
            time.sleep(min(len(self.active_channels) * YIELD_S, MOST_YIELD_S))
        for _ in range(1 if self._is_shared else ACCEPTS_PER_TURN):
            n_before = len(self.active_channels)
            super().handle_accept()
            if len(self.active_channels) == n_before:
                break
            self._close_excess()

    def _close_excess(self) -> None:
        channels = [channel for channel in self.active_channels.values() if not channel.will_close]
        newest = channels[-1]
        of_address = [channel for channel in channels if channel.addr[0] == newest.addr[0]]
        if len(of_address) > self.settings.max_connections_per_address:
            self._close_oldest(of_address, newest, "address_limit")
        elif len(channels) > self.max_connections:
            ((crowd, _),) = Counter(channel.addr[0] for channel in channels).most_common(1)
            self._close_oldest([c for c in channels if c.addr[0] == crowd], newest, "connection_limit")

    def _close_oldest(self, channels: Sequence[Channel], newest: Channel, reason: str) -> None:
        """Closes what is half open before what is idle between requests, and none that is being served."""
        idle = [channel for channel in channels if not channel.is_served]
        self._close(min(idle, key=_rank_to_close, default=newest), reason)

    def _close_late(self, now: float) -> None:
        for channel in list(self.active_channels.values()):
            if not channel.will_close and now - channel.since > channel.seconds_allowed(self.settings):
                self._close(channel, "deadline")

    def _close(self, channel: Channel, reason: str) -> None:
        channel.will_close = True  # for waitress that means to wait until more can be written, perhaps for ever
        self._closing.append(channel)
        self.app.metrics.add("grrm_connections_closed_total", reason=reason)


def _rank_to_close(channel: Channel) -> tuple[bool, float]:
    """New connections go by when they were opened: when each was first read says nothing."""
    is_between_requests = channel.has_been_served and channel.request is None
    return is_between_requests, channel.since if channel.has_been_served else channel.opened


def within_file_limit(n_connections: int) -> int:
    """`n_connections`, or as many as this process may have open together with the bodies that wait on disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * n_connections + OTHER_FILES
    if soft < needed and soft != resource.RLIM_INFINITY:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        n_connections = min(n_connections, max((soft - OTHER_FILES) // 2, 16))
    return n_connections
