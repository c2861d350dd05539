"""A real server whose judge takes its time and scores digits as what they are, and a patient client."""

from __future__ import annotations

import json
from contextlib import contextmanager

import requests
from support.reward_servers import serving
from support.stopped_clock import PATIENCE_S

from grrm.gqm.groups import Candidate, Group, TranslationTask
from grrm.rewards.client import RewardClient

SLOW_SERVER = """
import json, os, sys, threading
from grrm.gqm.groups import Status, Verdict
from grrm_reward_server.main import serve
from grrm_reward_server.settings import Settings

def score(translation):
    return float(translation) if translation.isdigit() else 0.0  # the readiness probe sends words

class SlowJudge:
    name = "slow"

    def judge(self, groups):
        texts = [c.translation for group in groups for c in group.candidates]
        wait = threading.Event().wait  # under libfaketime time.sleep fails when the clock jumps
        if sys.argv[1].startswith("/"):
            while os.path.exists(sys.argv[1]) and any(map(str.isdigit, texts)):
                wait(0.01)
        else:
            wait(float(sys.argv[1]))
        return [self.verdict([c.translation for c in group.candidates]) for group in groups]

    def verdict(self, texts):
        analysis = "x" * 4_000_000 if "wordy" in texts else ""
        return Verdict((Status.SCORED,) * len(texts), tuple(map(score, texts)), analysis=analysis)

serve(Settings(port=int(sys.argv[2]), **json.loads(sys.argv[3])), SlowJudge(), None)
"""


@contextmanager
def slow_server(takes, port=0, before="", variables=None, **settings):
    """(process, URL) of a server whose judge `takes` seconds for a call, or for as long as a file is there.

    The probes of readiness do not wait for the file. Its process runs the code `before` first and has these environment
    `variables` besides; `settings` are the server's.
    """
    command = ["-c", before + SLOW_SERVER, str(takes), str(port), json.dumps(settings)]
    with serving(command, **(variables or {})) as served:
        yield served


def make_groups(n_groups):
    task = TranslationTask("Hallo", "de", "en", "Hello")
    texts = [[str(g % 11), str((g * 7) % 11)] for g in range(n_groups)]
    return [
        Group(f"g{g}", task, tuple(Candidate(str(i), text, text) for i, text in enumerate(pair)))
        for g, pair in enumerate(texts)
    ]


def groups_judged(url):
    counts = [line.split() for line in requests.get(f"{url}/metrics", timeout=PATIENCE_S).text.splitlines()]
    return sum(float(words[1]) for words in counts if words[0] == "grrm_groups_total")


def make_client(*urls, **settings):
    patient = {"read_timeout_s": PATIENCE_S, "deadline_s": 2 * PATIENCE_S, "backoff_initial_s": 0.02}
    return RewardClient(list(urls), **(patient | settings))


def check_right(groups, verdicts):
    assert [v.scores for v in verdicts] == [tuple(float(c.response) for c in g.candidates) for g in groups]
