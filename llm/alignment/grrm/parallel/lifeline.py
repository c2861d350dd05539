"""Ending with one sentence when another process of the job is gone, instead of waiting for it.

A launcher ends the processes of its own machine. Those of another machine would wait in a collective, on GPUs until
NCCL's limit of half an hour, or judge and sample on and fail with a stack trace when they come to the next one.

So each process keeps a connection to the first one. The operating system closes it when the process ends, and probes it
while nothing is sent, so a machine that is cut off is noticed as well, however long a process computes without a break.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NoReturn

from grrm.parallel.barrier import Guest, Host, job_store

GRACE_S = 5.0  # for a process that is about to end by itself, with a sentence of its own
_NOTICE_S = 2.0  # between an error of a collective and the end of the connection that explains it
_STATUS = 2
_KEY = "grrm/lifeline"
GONE = "of this job is gone"  # in the sentence of a process that ends because of another
_BYE = b"bye\n"
_HANDLERS: list[Any] = []
# A connection in use is given up after 10 + 3 x 3 seconds without an answer of the other machine.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 3, "TCP_KEEPCNT": 3}


def watch_peers(world_size: int) -> Lifeline:
    """From now on, end this process when another of the job ends before it leaves the lifeline.

    Every process of the job must call this. Raises UserError when not all of them do.
    """
    if world_size <= 1:
        return Lifeline({}, 0, 1)
    store, rank, address = job_store()
    return Lifeline(connect(store, rank, world_size, address), rank, world_size)


def connect(store: Any, rank: int, world_size: int, address: str) -> dict[int, socket.socket]:
    """Connections to all other ranks on rank 0, and on each of them to rank 0."""
    if rank == 0:
        peers = Host(store, world_size, address, key=_KEY).peers
        return {int.from_bytes(peer.recv(4, socket.MSG_WAITALL), "big"): peer for peer in peers}
    host = Guest(store, world_size, key=_KEY).host
    host.sendall(rank.to_bytes(4, "big"))
    return {0: host}


class Lifeline:
    """Watches `peers`, connections by rank, in a thread of its own until this process ends or `leave`s."""

    def __init__(self, peers: Mapping[int, socket.socket], rank: int, world_size: int) -> None:
        self._peers, self._rank, self._world_size = dict(peers), rank, world_size
        self._sentence = ""
        self._lost = threading.Event()
        if not self._peers:
            return
        for peer in self._peers.values():
            keep_alive(peer)
        sys.excepthook = self.explain
        _before_abort(self._end_if_lost)
        threading.Thread(target=self._watch, name="lifeline", daemon=True).start()

    def leave(self) -> None:
        """Tell the others that this process has done its work: its end is no loss."""
        for peer in self._peers.values():
            with contextlib.suppress(OSError):
                peer.sendall(_BYE)

    def explain(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Takes the place of `sys.excepthook`: a collective that fails because a process is gone has no stack trace."""
        self._end_if_lost()
        sys.__excepthook__(kind, error, trace)

    def _end_if_lost(self) -> None:
        if self._lost.wait(_NOTICE_S):
            self._end()

    def _watch(self) -> None:
        with selectors.DefaultSelector() as watched:
            for rank, peer in self._peers.items():
                watched.register(peer, selectors.EVENT_READ, rank)
            while watched.get_map():
                for key, _ in watched.select():
                    peer = self._peers[key.data]
                    received = _receive(peer)
                    watched.unregister(peer)
                    if received != _BYE:
                        self._lose(received.decode() or f"{key.data} ({peer_address(peer)})")
                        return

    def _lose(self, who: str) -> None:
        self._sentence = (
            f"rank {who} of the {self._world_size} {GONE}, so rank {self._rank} ends too: the end of its "
            "log says why; start the command again on every machine to go on from the last checkpoint"
        )
        self._lost.set()
        for peer in self._peers.values():  # rank 0 tells the others which one it was
            with contextlib.suppress(OSError):
                peer.sendall(who.encode())
        threading.Event().wait(GRACE_S)
        self._end()

    def _end(self) -> NoReturn:
        print(f"error: {self._sentence}", file=sys.stderr, flush=True)
        os._exit(_STATUS)


def _before_abort(call: Callable[[], None]) -> None:
    """Have C++ call this before it aborts the process, which gloo's own thread may do when a connection breaks."""
    try:
        set_terminate = ctypes.CDLL("libstdc++.so.6")._ZSt13set_terminatePFvvE
    except (OSError, AttributeError):  # another C++ library
        return
    handler = ctypes.CFUNCTYPE(None)
    set_terminate.restype = handler

    def terminate() -> None:
        call()
        previous()

    ours = handler(terminate)
    _HANDLERS.append(ours)  # C++ keeps no reference
    previous = set_terminate(ours)


def keep_alive(connection: socket.socket) -> None:
    """Have the operating system probe an idle connection."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def peer_address(connection: socket.socket) -> str:
    """Return the address of the other end, as far as it is available."""
    try:
        return str(connection.getpeername()[0])
    except OSError:
        return "address unknown"


def _receive(peer: socket.socket) -> bytes:
    """Return the last message of the other process; empty if it is gone."""
    try:
        return peer.recv(256)
    except OSError:
        return b""
