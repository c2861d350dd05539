"""The client with the real server: killed, restarted, slow and silent ones."""

from __future__ import annotations

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from support.reward_protocol import check_right, client, make_groups
from support.reward_servers import groups_judged, slow_server
from support.stopped_clock import PATIENCE_S, eventually

from grrm.rewards.client import RewardServerError

STUCK_CLIENT = """
import sys
from grrm.gqm.groups import Candidate, Group, TranslationTask
from grrm.rewards.client import RewardClient, RewardServerError

client = RewardClient(["http://127.0.0.1:" + sys.argv[1]], deadline_s=0.3, read_timeout_s=600)
try:
    client.score([Group("g", TranslationTask("s", "de", "en"), (Candidate("c", "x", "x"),))])
except RewardServerError as error:
    print(error)
"""


def is_at_work(url):
    return requests.get(f"{url}/v1/live", timeout=PATIENCE_S).json()["running"] > 0


def test_killing_one_of_two_servers_in_the_middle_loses_nothing_and_invents_nothing(tmp_path):
    groups, hold = make_groups(40), tmp_path / "hold"
    with slow_server(hold) as (first, url_1), slow_server(0.0) as (_, url_2), ThreadPoolExecutor(1) as threads:
        asking = client(url_1, url_2, groups_per_request=1, max_connections=4)
        asking.wait_until_ready(PATIENCE_S)
        check_right(groups, asking.score(groups))
        assert groups_judged(url_1) > 0
        before = groups_judged(url_2)
        hold.touch()
        verdicts = threads.submit(asking.score, groups)
        eventually(lambda: is_at_work(url_1))
        first.kill()
        check_right(groups, verdicts.result(PATIENCE_S))
        assert groups_judged(url_2) == before + 40


def test_killing_the_only_server_stops_the_client_with_a_sentence_and_a_restart_serves_it_again():
    groups = make_groups(3)
    with slow_server(0.0) as (process, url):
        check_right(groups, client(url).score(groups))
        process.kill()
        process.wait(PATIENCE_S)
        with pytest.raises(
            RewardServerError, match=f"reward server {url} .*'g0' and 2 more at attempt .*refused.*deadline"
        ):
            client(url, deadline_s=2.0).score(groups)
    with slow_server(0.0, port=int(url.rpartition(":")[2])):
        check_right(groups, client(url).score(groups))


def test_client_time_out_retry_gets_the_first_answer_not_a_second_judgement(tmp_path):
    groups, hold, asked = make_groups(2), tmp_path / "hold", []
    hold.touch()
    with slow_server(hold) as (_, url), ThreadPoolExecutor(1) as threads:
        asking = client(url, read_timeout_s=0.5, attempts=1000)
        send = asking.http.exchange.send
        asking.http.exchange.send = lambda *request: asked.append(request) or send(*request)
        verdicts = threads.submit(asking.score, groups)
        eventually(lambda: is_at_work(url) and len(asked) > 1)
        asking.http.exchange.read_timeout_s = PATIENCE_S
        hold.unlink()
        check_right(groups, verdicts.result(PATIENCE_S))
        assert groups_judged(url) == 2


def test_failed_process_is_not_kept_alive_by_a_stuck_server():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        command = [sys.executable, "-c", STUCK_CLIENT, str(silent.getsockname()[1])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert "gave no reward for group 'g'" in done.stdout, done.stderr
