"""A model of ours behind OpenAI's protocol, from the socket to an orderly end."""

from __future__ import annotations

import socket

from ..front import Front
from ..running import leave, run_until_stopped
from .app import CompletionsApp, render_problem
from .replies import ServedModel
from .settings import CompletionSettings


def serve(
    settings: CompletionSettings, model: ServedModel, token: str | None, listener: socket.socket, drain_timeout_s: float
) -> None:
    """Serves `model` on `listener` until SIGTERM or SIGINT; prints `listening on URL` once connections are accepted.

    Then it takes no more requests and ends once those it has are answered. Raises SystemExit 1 where `drain_timeout_s`
    or a second signal ended it before.
    """
    app = CompletionsApp(settings, model, token)
    front = Front(app.flask, settings, listener, app.refusal, app.metrics, render_problem)
    n_unanswered = run_until_stopped(front, drain_timeout_s, app.begin_stopping)
    if n_unanswered or model.scheduler.n_running:
        leave(1 if n_unanswered else 0)
