"""The client with the real server: killed, restarted, slow and silent ones."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
import requests

from grrm.gqm.groups import Candidate, Group, TranslationTask
from grrm.rewards.client import RewardClient, RewardServerError

SLOW_SERVER = """
import sys, time
from grrm.gqm.groups import Status, Verdict
from grrm_reward_server.main import serve
from grrm_reward_server.settings import Settings

def score(translation):
    return float(translation) if translation.isdigit() else 0.0  # the readiness probe sends words

class SlowJudge:
    name = "slow"

    def judge(self, groups):
        time.sleep(float(sys.argv[1]))
        return [
            Verdict((Status.SCORED,) * len(group.candidates), tuple(score(c.translation) for c in group.candidates))
            for group in groups
        ]

serve(Settings(port=int(sys.argv[2])), SlowJudge(), None)
"""


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


@contextmanager
def slow_server(seconds, port=0):
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_SERVER, str(seconds), str(port)], stdout=subprocess.PIPE, text=True
    )
    try:
        yield process, process.stdout.readline().split()[-1]
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()


def make_groups(n_groups):
    task = TranslationTask("Hallo", "de", "en", "Hello")
    texts = [[str(g % 11), str((g * 7) % 11)] for g in range(n_groups)]
    return [
        Group(f"g{g}", task, tuple(Candidate(str(i), text, text) for i, text in enumerate(pair)))
        for g, pair in enumerate(texts)
    ]


def groups_judged(url):
    counts = [line.split() for line in requests.get(f"{url}/metrics", timeout=5).text.splitlines()]
    return sum(float(words[1]) for words in counts if words[0] == "grrm_groups_total")


def make_client(*urls, **settings):
    fast = {"read_timeout_s": 10.0, "deadline_s": 30.0, "backoff_initial_s": 0.02}
    return RewardClient(list(urls), **(fast | settings))


def check_right(groups, verdicts):
    assert [v.scores for v in verdicts] == [tuple(float(c.response) for c in g.candidates) for g in groups]


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
        client = make_client(url, attempts=3)
        check_right(groups, client.score(groups))
        process.kill()
        process.wait(10)
        with pytest.raises(RewardServerError, match=f"reward server {url} .*'g0' and 2 more at attempt 3"):
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
