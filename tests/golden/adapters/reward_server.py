"""PaddleNLP's reward protocol, through the Flask application with a judge that stands in for the row's scorer."""

from __future__ import annotations

from typing import Any

from support.reward_app import create_app

from grrm.gqm.groups import Status, Verdict
from grrm_reward_server.settings import Settings


class ConstantJudge:
    """Gives every candidate the same score."""

    name = "constant"

    def __init__(self, score: float) -> None:
        self.score = score

    def judge(self, groups):
        return [
            Verdict((Status.SCORED,) * len(group.candidates), (self.score,) * len(group.candidates)) for group in groups
        ]


class FailingJudge:
    """Raises the error that the row describes."""

    name = "failing"

    def judge(self, groups):
        raise ValueError("scorer failed")


def build_judge(scorer: str):
    words = scorer.split()
    return ConstantJudge(float(words[1])) if words[0] == "constant" else FailingJudge()


def post_root(given: dict[str, Any]) -> dict[str, Any]:
    """HTTP status and, when it is 200, the JSON that the route answers."""
    settings = Settings(extractor_type="none", score_scale_factor=1.0)
    app = create_app(settings, build_judge(given.get("scorer", "constant 1.0")))
    response = app.test_client().open(given["path"], method=given["method"], json=given["json"])
    answer = {"http_status": response.status_code}
    return answer | {"json": response.get_json()} if response.status_code == 200 else answer


FIXED = {"paddlenlp.reward_server.post_root": post_root}
