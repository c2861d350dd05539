"""Which server of a pool is asked next."""

from __future__ import annotations

from grrm.rewards.server_pool import ServerPool

URLS = ["http://a:1", "http://b:2"]


def test_server_with_the_fewest_requests_under_way_is_next():
    pool = ServerPool(URLS)
    first, second = pool.acquire(), pool.acquire()
    assert {first.url, second.url} == set(URLS)
    pool.release(second, None)
    assert pool.acquire() is second


def test_failed_server_rests_until_it_answers_again():
    pool = ServerPool(URLS)
    failed = pool.acquire()
    pool.release(failed, 100.0)
    others = [pool.acquire() for _ in range(3)]
    assert all(server is not failed for server in others)
    assert pool.seconds_until_free() == 0.0
    pool.release(failed, None)  # an answer to a request that was already under way
    assert pool.acquire() is failed


def test_longer_rest_wins():
    pool = ServerPool(["http://a:1"])
    server = pool.acquire()
    pool.release(server, 100.0)
    pool.release(pool.acquire(), 1.0)
    assert pool.seconds_until_free() > 50.0


def test_all_resting_gives_the_one_that_is_back_first():
    pool = ServerPool(URLS)
    first, second = pool.acquire(), pool.acquire()
    pool.release(first, 100.0)
    pool.release(second, 50.0)
    assert pool.acquire() is second
    assert 40.0 < pool.seconds_until_free() <= 50.0


def test_repeated_and_slashed_urls_are_one_server():
    assert ServerPool(["http://a:1", "http://a:1/"]).urls == ["http://a:1"]
    assert ServerPool(["http://a:1/", "http://b:2/judge/"]).urls == ["http://a:1", "http://b:2/judge"]
