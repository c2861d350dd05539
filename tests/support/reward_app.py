"""The Flask application in process, a judge that records, and bodies to post."""

from __future__ import annotations

from grrm.gqm.groups import Status, Verdict
from grrm_reward_server.app import create_app
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


def make_client(judge=None, token=None, **values):
    return create_app(Settings(**values), judge or RecordingJudge(), token).test_client()


def group(group_id="g", *texts, **fields):
    candidates = [{"candidate_id": f"c{i}", "response": text} for i, text in enumerate(texts or ("one",))]
    base = {"group_id": group_id, "source": "Hallo", "src_lang": "de", "trg_lang": "en", "reference": "Hello"}
    return base | {"candidates": candidates} | fields


def score_body(*groups, request_id="r"):
    return {"request_id": request_id, "groups": list(groups or (group(),))}


def rows_body(n=2, **fields):
    return {"src": ["s"] * n, "tgt": ["t"] * n, "response": ["a"] * n} | fields
