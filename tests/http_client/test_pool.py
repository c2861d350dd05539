"""Which server of a pool is asked next."""

from __future__ import annotations

import threading
import time

from support.local_server import LocalServer

from grrm.http_client import pool as server_pool
from grrm.http_client.exchange import HttpExchange
from grrm.http_client.pool import ServerPool

URLS = ["http://a:1", "http://b:2"]


def test_server_with_the_fewest_requests_under_way_is_next():
    pool = ServerPool(URLS)
    first, second = pool.acquire(pool.urls), pool.acquire(pool.urls)
    assert {first.url, second.url} == set(URLS)
    pool.release(second, None)
    assert pool.acquire(pool.urls) is second


def test_failed_server_rests_until_it_answers_again():
    pool = ServerPool(URLS)
    failed = pool.acquire(pool.urls)
    pool.release(failed, 100.0)
    others = [pool.acquire(pool.urls) for _ in range(3)]
    assert all(server is not failed for server in others)
    assert pool.seconds_until_free(pool.urls) == 0.0
    pool.release(failed, None)  # an answer to a request that was already under way
    assert pool.acquire(pool.urls) is failed


def test_longer_rest_wins():
    pool = ServerPool(["http://a:1"])
    server = pool.acquire(pool.urls)
    pool.release(server, 100.0)
    pool.release(pool.acquire(pool.urls), 1.0)
    assert pool.seconds_until_free(pool.urls) > 50.0


def test_all_resting_gives_the_one_that_is_back_first():
    pool = ServerPool(URLS)
    first, second = pool.acquire(pool.urls), pool.acquire(pool.urls)
    pool.release(first, 100.0)
    pool.release(second, 50.0)
    assert pool.acquire(pool.urls) is second
    assert 40.0 < pool.seconds_until_free(pool.urls) <= 50.0


def test_repeated_urls_are_one_server():
    assert ServerPool(["http://a:1", "http://a:1", "http://b:2/judge"]).urls == ["http://a:1", "http://b:2/judge"]


def test_only_the_named_servers_are_asked():
    pool = ServerPool(URLS)
    assert {pool.acquire(["http://b:2"]).url for _ in range(3)} == {"http://b:2"}
    assert {pool.acquire({"http://a:1"}).url for _ in range(3)} == {"http://a:1"}


def late(pool):
    server = pool.acquire(pool.urls)
    pool.release(server, 0.0, timed_out=True)
    return server


def test_server_that_timed_out_is_left_alone_while_others_serve():
    pool = ServerPool(URLS)
    hung = late(pool)
    others = [pool.acquire(pool.urls) for _ in range(3)]
    assert hung not in others
    for other in others:
        pool.release(other, 5.0)  # short of a minute the others' rest is waited out
    assert pool.seconds_until_free(pool.urls) > 4.0
    assert pool.acquire(pool.urls) is not hung


def test_only_server_is_asked_again_although_it_timed_out():
    pool = ServerPool(["http://a:1"])
    hung = late(pool)
    assert pool.seconds_until_free(pool.urls) == 0.0
    assert pool.acquire(pool.urls) is hung


def test_suspect_is_probed_while_others_serve_and_taken_back_when_it_answers(monkeypatch):
    monkeypatch.setattr(server_pool, "FIRST_PROBE_S", 0.0)
    probed, answer = threading.Event(), [False]

    def answers(url):
        probed.set()
        return answer[0]

    pool = ServerPool(URLS, answers)
    hung = late(pool)
    for is_well in (False, True):
        answer[0] = is_well
        probed.clear()
        pool.release(pool.acquire(pool.urls), None)
        assert probed.wait(120)
        while hung.is_probed:
            pass
        assert hung.is_suspect is not is_well
    assert {pool.acquire(pool.urls) for _ in range(2)} >= {hung}


def test_a_probe_without_an_answer_puts_the_next_one_off():
    probed = threading.Event()
    pool = ServerPool(URLS, lambda url: probed.set())
    hung = late(pool)
    hung.probe_at = 0.0  # the time has come
    pool.release(pool.acquire(pool.urls), None)
    assert probed.wait(5)
    while hung.is_probed:
        pass
    assert hung.is_suspect
    assert hung.probe_at > time.monotonic() + server_pool.FIRST_PROBE_S - 5


def test_each_further_time_out_puts_the_probe_off():
    pool = ServerPool(["http://a:1"])
    times = []
    for _ in range(3):
        hung = late(pool)
        times.append(hung.probe_at)
        hung.is_suspect = False  # as after a probe: it answers probes, and no requests
    assert times[2] - times[1] > times[1] - times[0] > server_pool.FIRST_PROBE_S - 1
    pool.release(pool.acquire(pool.urls), None)
    assert hung.n_late == 0


def test_connections_to_the_servers_of_a_large_pool_stay_open(closing):
    connections = set()

    def answer(handler, content):
        connections.add(handler.client_address)
        handler.reply(200, {})

    servers = [closing.enter_context(LocalServer(answer)) for _ in range(12)]
    exchange = HttpExchange()
    for server in servers * 2:
        exchange.send("GET", server.url, "/", None, time.monotonic() + 60)
    exchange.close()
    assert len(connections) == len(servers)
