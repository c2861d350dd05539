"""Processes that are far apart wait for one another, within a limit, before they enter a collective."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from grrm.errors import UserError
from grrm.parallel.meeting import Meetings, barrier


class SharedCounter:
    """A TCPStore of one process."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.lock = threading.Lock()

    def add(self, key: str, amount: int) -> int:
        with self.lock:
            self.counts[key] += amount
            return self.counts[key]


def test_nobody_leaves_before_the_last_one_came_time_after_time():
    store, n_ranks, n_meetings = SharedCounter(), 3, 20
    arrived, too_early = [0] * n_ranks, []

    def run(rank: int) -> None:
        meetings = Meetings(store, n_ranks)
        for number in range(1, n_meetings + 1):
            time.sleep(0.001 * ((rank + number) % n_ranks))
            arrived[rank] = number
            meetings.wait(10.0)
            if min(arrived) < number:
                too_early.append((rank, number))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(n_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert arrived == [n_meetings] * n_ranks
    assert too_early == []


def test_rank_that_never_comes_is_told_with_the_number_missing():
    store = SharedCounter()
    store.add("grrm/arrivals", 1)
    with pytest.raises(
        UserError, match=r"^1 of 3 processes did not arrive within 0\.05 s: one of them is stuck or lost"
    ):
        Meetings(store, 3).wait(0.05)


def test_single_process_waits_for_nobody():
    barrier(1)
