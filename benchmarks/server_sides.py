"""The servers that benchmarks/server.py compares, each a process that says `listening on URL`.

    python benchmarks/server_sides.py ours | flask-waitress

`ours` is this project's server with a judge that costs nothing. The other is a Flask application of a few lines that
reads the same JSON and answers in the same shape: what any Flask server has to do. gunicorn finds it as `bare_app`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flask import Flask

    from grrm.gqm.groups import Group, Verdict

SCORE = 5.0
THREADS = 68  # as many as this project's server has


class InstantJudge:
    """Gives every candidate the same score."""

    name = "instant"

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        from grrm.gqm.groups import Status, Verdict

        return [
            Verdict(
                (Status.SCORED,) * len(group.candidates),
                (SCORE,) * len(group.candidates),
                (tuple(candidate.candidate_id for candidate in group.candidates),),
            )
            for group in groups
        ]


def bare_app() -> Flask:
    """The least a Flask server does: parse, look at every row or candidate, answer."""
    from flask import Flask, jsonify, request

    app = Flask("bare")

    @app.get("/healthz")
    def healthz() -> str:
        return "up"

    @app.post("/")
    def rows() -> Any:
        return jsonify(error_code=0, error_msg="Success", score=[SCORE for _ in request.get_json()["response"]])

    @app.post("/v1/score")
    def groups() -> Any:
        parsed = request.get_json()
        verdicts = [_verdict(group) for group in parsed["groups"]]
        return jsonify(request_id=parsed["request_id"], verdicts=verdicts)

    return app


def _verdict(group: dict[str, Any]) -> dict[str, Any]:
    ids = [candidate["candidate_id"] for candidate in group["candidates"]]
    scores = [{"candidate_id": name, "status": "scored", "score": SCORE} for name in ids]
    return {"group_id": group["group_id"], "candidates": scores, "ranking": [ids], "analysis": "", "attempts": 0}


def serve_ours() -> None:
    """This project's server, logging as it does when its script starts it."""
    from grrm_reward_server.app import RewardApp
    from grrm_reward_server.hosting import HostedJudge
    from grrm_reward_server.running import listening, serve_until_stopped
    from grrm_reward_server.settings import Settings

    settings = Settings(port=0)
    with listening(settings) as (listener, token):
        app = RewardApp(settings, [HostedJudge(InstantJudge())], token)
        serve_until_stopped(app, settings, listener, settings.judge_deadline_s)


def serve_bare() -> None:
    """The few lines under waitress as it comes, but for the number of threads."""
    from waitress.server import create_server

    server = create_server(bare_app(), host="127.0.0.1", port=0, threads=THREADS, connection_limit=1000)
    print(f"listening on http://127.0.0.1:{server.effective_port}", flush=True)
    server.run()


if __name__ == "__main__":
    {"ours": serve_ours, "flask-waitress": serve_bare}[sys.argv[1]]()
