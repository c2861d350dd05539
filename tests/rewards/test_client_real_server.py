"""The client with the real server: killed, restarted, slow and silent ones."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time

import pytest
import requests
from support.slow_server import check_right, groups_judged, make_client, make_groups, slow_server

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


def test_killing_one_of_two_servers_in_the_middle_loses_nothing_and_invents_nothing():
    groups = make_groups(40)
    with slow_server(0.05) as (first, url_1), slow_server(0.05) as (_, url_2):
        client = make_client(url_1, url_2, groups_per_request=1, max_connections=4)
        client.wait_until_ready(10)
        verdicts = []
        caller = threading.Thread(target=lambda: verdicts.extend(client.score(groups)))
        caller.start()
        while (
            float(requests.get(f"{url_1}/metrics", timeout=5).text.partition("\ngrrm_groups_total ")[2].split()[0]) < 4
        ):
            time.sleep(0.01)
        first.kill()
        caller.join(30)
        judged_by_second = groups_judged(url_2)
    check_right(groups, verdicts)
    assert judged_by_second >= 20


def test_killing_the_only_server_stops_the_client_with_a_sentence_and_a_restart_serves_it_again():
    groups = make_groups(3)
    with slow_server(0.0) as (process, url):
        client = make_client(url, deadline_s=2.0)
        check_right(groups, client.score(groups))
        process.kill()
        process.wait(10)
        with pytest.raises(
            RewardServerError, match=f"reward server {url} .*'g0' and 2 more at attempt .*refused.*deadline"
        ):
            client.score(groups)
    with slow_server(0.0, int(url.rpartition(":")[2])):
        check_right(groups, client.score(groups))


def test_client_time_out_retry_gets_the_first_answer_not_a_second_judgement():
    groups = make_groups(2)
    with slow_server(0.6) as (_, url):
        client = make_client(url, read_timeout_s=0.25, attempts=10)
        check_right(groups, client.score(groups))
        assert groups_judged(url) == 2


def test_failed_process_is_not_kept_alive_by_a_stuck_server():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        command = [sys.executable, "-c", STUCK_CLIENT, str(silent.getsockname()[1])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert "gave no reward for group 'g'" in done.stdout, done.stderr
