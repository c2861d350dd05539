"""The client beside real servers that are busy, hung or away: what it waits out, and what that costs."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.reward_protocol import check_right, client, make_groups
from support.reward_servers import groups_judged, slow_server
from support.stopped_clock import PATIENCE_S, eventually


def test_hung_member_costs_one_time_out_and_serves_again_once_it_goes_on():
    groups = make_groups(8)
    with slow_server(0.0) as (hung, url_1), slow_server(0.0) as (_, url_2):
        asking = client(url_1, url_2, groups_per_request=1, read_timeout_s=3.0, connect_timeout_s=2.0)
        asking.wait_until_ready(PATIENCE_S)
        send, asked = asking.http.exchange.send, []
        asking.http.exchange.send = lambda method, url, *rest: asked.append((method, url)) or send(method, url, *rest)
        hung.send_signal(signal.SIGSTOP)
        check_right(groups, asking.score(groups))
        assert ("POST", url_1) in asked
        asked.clear()
        for _ in range(4):
            check_right(groups, asking.score(groups))
        assert ("POST", url_1) not in asked
        hung.send_signal(signal.SIGCONT)
        for server in asking.http.pool._servers:
            server.probe_at = 0.0
        before = groups_judged(url_1)

        def is_served_again():
            check_right(groups, asking.score(groups))
            return groups_judged(url_1) > before

        eventually(is_served_again)


@pytest.mark.slow
def test_twenty_ranks_on_one_slow_server_all_get_their_rewards():
    groups = make_groups(16)
    with slow_server(0.2, max_in_flight=8, max_groups=4) as (_, url):
        clients = [
            client(url, deadline_s=600.0, attempts=1, groups_per_request=4, read_timeout_s=120.0) for _ in range(20)
        ]
        with ThreadPoolExecutor(len(clients)) as ranks:
            for verdicts in ranks.map(lambda one: one.score(groups), clients):
                check_right(groups, verdicts)
        assert groups_judged(url) == 20 * len(groups)
