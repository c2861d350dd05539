"""The Flask application in process, a judge that records, and bodies to post."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from grrm.gqm.groups import Status, Verdict
from grrm_reward_server.app import RewardApp
from grrm_reward_server.hosting import HostedJudge
from grrm_reward_server.settings import Settings


class RecordingJudge:
    """Scores a translation by its length; remembers the groups; does `before()` first."""

    name = "recording"

    def __init__(self, before=lambda: None):
        self.calls: list = []
        self.before = before

    def judge(self, groups):
        self.calls.append(list(groups))
        self.before()
        return [self.verdict(group) for group in groups]

    def verdict(self, group):
        texts = [candidate.translation for candidate in group.candidates]
        statuses = tuple(Status.UNPARSABLE_CANDIDATE if text is None else Status.SCORED for text in texts)
        return Verdict(statuses, tuple(None if text is None else float(len(text) % 11) for text in texts))


def fail():
    raise RuntimeError("out of memory")


def reward_app(settings, judge, token=None):
    """The application that hosts a judge, ready for the server or not, or a list of such as are."""
    judges = judge if isinstance(judge, list) else [judge]
    return RewardApp(settings, [one if isinstance(one, HostedJudge) else HostedJudge(one) for one in judges], token)


def create_app(settings, judge, token=None):
    return reward_app(settings, judge, token).flask


def make_client(judge=None, token=None, **values):
    return create_app(Settings(**values), judge or RecordingJudge(), token).test_client()


@contextmanager
def request_at_the_judge(body=None, **values) -> Iterator[tuple[Any, Future, Any]]:
    """(client's post, the answer to come, judge) while a request is at the judge of an application; it is answered.

    The judge goes on at the end, or where a caller sets its event `release`.
    """
    started = threading.Event()

    def hold():
        started.set()
        assert judge.release.wait(120)

    judge = RecordingJudge(hold)
    judge.release = threading.Event()
    client = create_app(Settings(**values), judge).test_client
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(lambda: client().post("/v1/score", json=body or score_body()))
        assert started.wait(120)
        try:
            yield client, answer, judge
        finally:
            judge.release.set()
        assert answer.result(120).status_code == 200


def group(group_id="g", *texts, **fields):
    candidates = [{"candidate_id": f"c{i}", "response": text} for i, text in enumerate(texts or ("one",))]
    base = {"group_id": group_id, "source": "Hallo", "src_lang": "de", "trg_lang": "en", "reference": "Hello"}
    return base | {"candidates": candidates} | fields


def score_body(*groups, request_id="r"):
    return {"request_id": request_id, "groups": list(groups or (group(),))}


def rows_body(n=2, **fields):
    return {"src": ["s"] * n, "tgt": ["t"] * n, "response": ["a"] * n} | fields
