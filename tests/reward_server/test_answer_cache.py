"""The cache of answers by request id."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.stopped_clock import eventually

from grrm_reward_server.answer_cache import AnswerCache
from grrm_reward_server.problems import RequestProblem, Unfinished


def make_cache(**bounds):
    return AnswerCache(**({"max_entries": 2, "max_bytes": 100, "wait_s": 120.0} | bounds))


def put(cache, name, size=1):
    return cache.get_or_compute(name, b"", lambda _: b"x" * size)


def is_kept(cache, name):
    return cache.get_or_compute(name, b"", lambda _: b"new")[1]


@pytest.mark.parametrize(("max_entries", "size"), [(2, 1), (10, 40)], ids=["entries", "bytes"])
def test_oldest_answer_is_dropped_beyond_the_number_of_entries_or_bytes(max_entries, size):
    cache = make_cache(max_entries=max_entries)
    for name in "abc":
        put(cache, name, size=size)
    assert is_kept(cache, "c")
    assert is_kept(cache, "b")
    assert not is_kept(cache, "a")


def test_answer_larger_than_the_cache_is_given_but_not_kept():
    cache = make_cache()
    assert put(cache, "a", size=101) == (b"x" * 101, False)
    assert not is_kept(cache, "a")


class Blocked:
    """A computation that waits to be released; `outcome()` decides how it ends."""

    def __init__(self, outcome):
        self.started, self.released, self.outcome = threading.Event(), threading.Event(), outcome

    def __call__(self, is_abandoned):
        self.is_abandoned = is_abandoned
        self.started.set()
        assert self.released.wait(120)
        return self.outcome(None)


def not_again(_):
    pytest.fail("was computed")


def repeated(threads, cache, compute, is_gone=lambda: False, again=not_again):
    """Futures of a request that is being computed, whose client is gone, and of a repeat that waits for its answer."""
    first = threads.submit(cache.get_or_compute, "a", b"", compute, lambda: True)
    assert compute.started.wait(120)
    repeat = threads.submit(cache.get_or_compute, "a", b"", again, is_gone)
    eventually(lambda: not compute.is_abandoned())
    return first, repeat


def test_repeats_share_a_failure_and_later_ones_try_again():
    cache, compute = make_cache(), Blocked(lambda _: 1 / 0)
    with ThreadPoolExecutor(2) as threads:
        waiting = repeated(threads, cache, compute)
        compute.released.set()
        for one in waiting:
            with pytest.raises(ZeroDivisionError):
                one.result(120)
    assert cache.get_or_compute("a", b"", lambda _: b"later") == (b"later", False)


def test_request_under_way_is_never_dropped():
    cache, compute = make_cache(max_entries=1), Blocked(lambda _: b"answer")
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(cache.get_or_compute, "slow", b"", compute)
        assert compute.started.wait(120)
        for name in "abc":
            put(cache, name)
        compute.released.set()
        assert first.result(120)[0] == b"answer"
    assert is_kept(cache, "slow")


def test_a_request_is_abandoned_once_all_who_wait_for_its_answer_are_gone():
    cache, compute, gone = make_cache(), Blocked(lambda _: b"answer"), []
    with ThreadPoolExecutor(2) as threads:
        first, repeat = repeated(threads, cache, compute, lambda: bool(gone))
        gone.append(True)
        with pytest.raises(RequestProblem, match="the client has gone"):
            repeat.result(120)
        assert compute.is_abandoned()
        compute.released.set()
        assert first.result(120)[0] == b"answer"


def test_a_repeat_ends_at_its_own_deadline():
    cache, compute = make_cache(), Blocked(lambda _: b"answer")
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(cache.get_or_compute, "a", b"", compute)
        assert compute.started.wait(120)
        try:
            with pytest.raises(Unfinished) as caught:
                cache.get_or_compute("a", b"", not_again, until=time.monotonic() + 0.05)
        finally:
            compute.released.set()
        assert (caught.value.answer.request_id, caught.value.answer.verdicts) == ("a", [])
        assert first.result(120)[0] == b"answer"


def test_a_repeat_with_time_left_computes_anew_where_the_first_missed_its_deadline():
    def unfinished(_):
        raise Unfinished("a", "late")

    cache, compute = make_cache(), Blocked(unfinished)
    with ThreadPoolExecutor(2) as threads:
        first, repeat = repeated(threads, cache, compute, again=lambda _: b"new")
        compute.released.set()
        assert isinstance(first.exception(120), Unfinished)
        assert repeat.result(120) == (b"new", False)
