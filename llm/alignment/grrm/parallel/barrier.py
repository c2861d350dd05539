"""A barrier for the processes of a job, with a time limit of our choice.

Gloo, Paddle's transport between CPU processes, gives up on a collective after 30 seconds, and this limit is fixed.
Ranks that judge, roll out or save can be minutes apart, so they wait at this barrier before they enter a collective.

Paddle's TCPStore could count arrivals, but each of its calls takes 40 ms (small writes that wait for TCP's delayed
acknowledgement), more than all else between two steps of a small model. So the processes are connected by sockets with
TCP_NODELAY.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import time
from typing import Any

from grrm.errors import UserError

_KEY = "grrm/barrier"
_CONNECT_S = 300.0
_TOKEN_BYTES = 32
_ARRIVED, _GO = b"h", b"g"


class Host:
    """The first process, to which every other one connects.

    Only peers that send the token published in the job's store, a TCPStore, are accepted. Raises UserError if not all
    connect in time.
    """

    def __init__(
        self, store: Any, world_size: int, address: str, timeout_s: float = _CONNECT_S, key: str = _KEY
    ) -> None:
        token = secrets.token_bytes(_TOKEN_BYTES)
        self.peers: list[socket.socket] = []
        give_up = time.monotonic() + timeout_s
        with socket.create_server((address, 0)) as server:
            port = server.getsockname()[1]
            store.set(key, f"{address} {port} {token.hex()}".encode())
            while len(self.peers) < world_size - 1:
                server.settimeout(_remaining_s(give_up, world_size - 1 - len(self.peers), world_size, timeout_s))
                self._admit(server, token)

    def _admit(self, server: socket.socket, token: bytes) -> None:
        try:
            peer, _ = server.accept()
            peer.settimeout(5.0)
            if not hmac.compare_digest(_receive(peer, _TOKEN_BYTES), token):
                peer.close()
                return
        except (TimeoutError, ConnectionError):
            return
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peers.append(peer)

    def wait(self, timeout_s: float) -> None:
        """Return when every process has called this as often as we have. Raises UserError after `timeout_s`."""
        give_up = time.monotonic() + timeout_s
        for number, peer in enumerate(self.peers):
            peer.settimeout(_remaining_s(give_up, len(self.peers) - number, len(self.peers) + 1, timeout_s))
            _expect(peer, _ARRIVED, len(self.peers) - number, len(self.peers) + 1, timeout_s)
        for peer in self.peers:
            peer.sendall(_GO)


class Guest:
    """Any process but the first."""

    def __init__(self, store: Any, world_size: int, timeout_s: float = _CONNECT_S, key: str = _KEY) -> None:
        self.world_size = world_size
        store.wait(key)
        address, port, token = bytes(store.get(key)).decode().split()
        self.host = socket.create_connection((address, int(port)), timeout=timeout_s)
        self.host.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.host.sendall(bytes.fromhex(token))

    def wait(self, timeout_s: float) -> None:
        """Return when every process has called this as often as we have. Raises UserError after `timeout_s`."""
        self.host.settimeout(timeout_s)
        try:
            self.host.sendall(_ARRIVED)
        except OSError:
            raise _lost(1, self.world_size) from None
        _expect(self.host, _GO, 1, self.world_size, timeout_s)


_job: Host | Guest | None = None


def barrier(world_size: int, timeout_s: float = 1800.0) -> None:
    """Wait for every process of this job, however far apart they are; returns at once when there is only one."""
    if world_size <= 1:
        return
    global _job
    if _job is None:
        store, rank, address = job_store()
        _job = Host(store, world_size, address) if rank == 0 else Guest(store, world_size)
    _job.wait(timeout_s)


def job_store() -> tuple[Any, int, str]:
    """The TCPStore of this job, and this process's rank and address in it."""
    import paddle.distributed as dist
    from paddle.base import core

    parallel_env: Any = dist.ParallelEnv  # not annotated in Paddle
    store: Any = core.create_or_get_global_tcp_store()  # annotated for text alone, but takes bytes
    environment = parallel_env()
    return store, environment.rank, environment.current_endpoint.rpartition(":")[0] or "127.0.0.1"


def _remaining_s(give_up: float, missing: int, world_size: int, timeout_s: float) -> float:
    remaining_s = give_up - time.monotonic()
    if remaining_s <= 0:
        raise _late(missing, world_size, timeout_s)
    return remaining_s


def _expect(peer: socket.socket, expected: bytes, missing: int, world_size: int, timeout_s: float) -> None:
    try:
        received = _receive(peer, len(expected))
    except TimeoutError:
        raise _late(missing, world_size, timeout_s) from None
    except OSError:
        raise _lost(missing, world_size) from None
    if received != expected:
        raise RuntimeError(f"expected {expected!r} from another process of this job, heard {received!r}")


def _receive(peer: socket.socket, n_bytes: int) -> bytes:
    received = b""
    while len(received) < n_bytes:
        part = peer.recv(n_bytes - len(received))
        if not part:
            raise ConnectionResetError("the other end is gone")
        received += part
    return received


def _late(missing: int, world_size: int, timeout_s: float) -> UserError:
    return UserError(
        f"{missing} of {world_size} processes did not arrive within {timeout_s:g} s: one of them is stuck or lost, "
        "look at the end of each rank's log and start again"
    )


def _lost(missing: int, world_size: int) -> UserError:
    return UserError(
        f"{missing} of {world_size} processes ended while this one waited for them: look at the end of each rank's "
        "log and start again"
    )
