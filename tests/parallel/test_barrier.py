"""Processes that are far apart wait for one another, within a limit, before they enter a collective."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from grrm.errors import UserError
from grrm.parallel.barrier import Guest, Host, barrier


class SharedStore:
    """A TCPStore of one process."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.changed = threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def wait(self, key: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: key in self.values, timeout=120)

    def get(self, key: str) -> bytes:
        return self.values[key]


def join(store: SharedStore, rank: int, world_size: int, timeout_s: float = 120.0) -> Host | Guest:
    return Host(store, world_size, "127.0.0.1", timeout_s) if rank == 0 else Guest(store, world_size, timeout_s)


def run_all(works: list) -> list:
    """Run each work in a thread of its own; what each returned or raised."""
    with ThreadPoolExecutor(len(works)) as threads:
        outcomes = [threads.submit(work) for work in works]
        return [one.exception(120) or one.result() for one in outcomes]


def test_nobody_leaves_before_the_last_one_came_time_after_time():
    store, n_ranks, n_barriers = SharedStore(), 3, 20
    arrived, too_early = [0] * n_ranks, []

    def attend(rank: int) -> None:
        place = join(store, rank, n_ranks)
        for number in range(1, n_barriers + 1):
            time.sleep(0.001 * ((rank + number) % n_ranks))
            arrived[rank] = number
            place.wait(120.0)
            if min(arrived) < number:
                too_early.append((rank, number))

    run_all([lambda rank=rank: attend(rank) for rank in range(n_ranks)])
    assert arrived == [n_barriers] * n_ranks
    assert too_early == []


def test_rank_that_comes_late_is_waited_for_and_one_that_never_comes_is_reported():
    store, host_gave_up = SharedStore(), threading.Event()

    def prompt_host() -> None:
        place = join(store, 0, 2)
        place.wait(120.0)
        try:
            place.wait(0.05)
        finally:
            host_gave_up.set()

    def late_guest() -> None:
        place = join(store, 1, 2)
        time.sleep(0.3)
        place.wait(120.0)
        assert host_gave_up.wait(120.0)

    host, guest = run_all([prompt_host, late_guest])
    assert guest is None
    assert str(host).startswith("1 of 2 processes did not arrive within 0.05 s: one of them is stuck or lost")


@pytest.mark.parametrize("leaver", [0, 1])
def test_process_that_ends_is_reported_at_once_to_those_who_wait(leaver):
    store = SharedStore()

    def leave() -> None:
        place = join(store, leaver, 2)
        for connection in place.peers if isinstance(place, Host) else [place.host]:
            connection.close()

    def stay() -> None:
        place = join(store, 1 - leaver, 2)
        place.wait(60.0)

    outcomes = run_all([leave, stay] if leaver == 0 else [stay, leave])
    assert "1 of 2 processes ended while this one waited" in str(outcomes[1 - leaver])


def test_process_that_never_connects_is_reported_with_the_number_missing():
    with pytest.raises(UserError, match=r"^2 of 3 processes did not arrive within 0\.05 s"):
        Host(SharedStore(), 3, "127.0.0.1", timeout_s=0.05)


def test_stranger_without_the_token_is_not_counted():
    store = SharedStore()

    def stranger_then_guest() -> None:
        store.wait("grrm/barrier")
        address, port, _ = store.get("grrm/barrier").decode().split()
        with socket.create_connection((address, int(port))) as connection:
            connection.sendall(b"x" * 32)
            assert connection.recv(1) == b""
        join(store, 1, 2).wait(120.0)

    assert run_all([lambda: join(store, 0, 2).wait(120.0), stranger_then_guest]) == [None, None]


def test_single_process_waits_for_nobody():
    barrier(1)
