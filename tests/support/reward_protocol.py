"""The reward server's side of its protocol as steps of a `LocalServer`, and a client with groups whose scores show."""

from __future__ import annotations

import json

from support.stopped_clock import PATIENCE_S

from grrm.gqm.groups import Candidate, Group, TranslationTask
from grrm.rewards.client import RewardClient

TASK = TranslationTask("Hallo", "de", "en", "Hello")
PATIENT = {
    "connect_timeout_s": 30.0,
    "read_timeout_s": PATIENCE_S,
    "deadline_s": 2 * PATIENCE_S,
    "attempts": 3,
    "backoff_initial_s": 0.01,
}


def make_groups(n_groups: int, n_candidates: int = 2) -> list[Group]:
    """Groups of texts that are numbers; each is the score that it is to have."""
    return [
        Group(f"g{g}", TASK, tuple(Candidate(f"c{c}", text, text) for c, text in enumerate(texts)))
        for g, texts in enumerate([[str((7 * g + 3 * c) % 11) for c in range(n_candidates)] for g in range(n_groups)])
    ]


def expected_score(response: str) -> float:
    return float(response) if response.isdigit() else 0.0


def right_answer(body: bytes) -> dict:
    request = json.loads(body)
    verdicts = [
        {
            "group_id": group["group_id"],
            "candidates": [
                {
                    "candidate_id": candidate["candidate_id"],
                    "status": "scored",
                    "score": expected_score(candidate["response"]),
                }
                for candidate in group["candidates"]
            ],
            "ranking": None,
            "analysis": "",
            "attempts": 1,
        }
        for group in request["groups"]
    ]
    return {"request_id": request["request_id"], "verdicts": verdicts}


def ok(handler, body):
    handler.reply(200, right_answer(body))


def status(code: int, message: str = "no", **headers: str):
    problem = {"error_code": code, "error_msg": message, "field": "groups[0]", "reference_id": "r1"}
    return lambda handler, body: handler.reply(code, problem, **headers)


def edited(edit):
    """The right answer after `edit(answer)`, sent with Python's lenient JSON (NaN and all)."""

    def step(handler, body):
        answer = right_answer(body)
        edit(answer)
        handler.reply(200, answer)

    return step


def raw(content: bytes):
    return lambda handler, body: handler.reply(200, content)


def client(*urls: str, **settings) -> RewardClient:
    return RewardClient(list(urls), **(PATIENT | settings))


def check_right(groups, verdicts) -> None:
    assert [len(v.scores) for v in verdicts] == [len(g.candidates) for g in groups]
    for group, verdict in zip(groups, verdicts, strict=True):
        assert list(verdict.scores) == [expected_score(c.response) for c in group.candidates]
