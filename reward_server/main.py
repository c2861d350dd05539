"""Command line of the reward server."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from grrm.engine.options import BACKENDS, DTYPES
from grrm.entry import read_assignments, run_main
from grrm.errors import UserError
from grrm.gqm.chat import CHAT_TEMPLATES
from grrm.gqm.extraction import EXTRACTOR_TYPES
from grrm.judges.interface import Judge
from grrm.startup import freeze_gc

from .access import bind, read_token
from .hosting import HostedJudge, build_hosted_judge
from .settings import JUDGES, Settings, load_settings

if TYPE_CHECKING:
    from .front import Front

logger = logging.getLogger(__name__)
LONGEST_TURN_S = 0.5


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--host", help="Address to listen on; any other than loopback needs a token.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="Port to listen on, 0 for a free one.  [default: 8731]")
@click.option("--config", metavar="FILE", help="YAML file of settings; the options here override it.")
@click.option(
    "--judge",
    type=click.Choice(JUDGES),
    help="Judge to host; rm, ranker, gqm (grrm), sqm, rubric and verifier need a model.  [default: chrf]",
)
@click.option("--model", help="Folder of the judge's checkpoint; with --openai-url the model's name there.")
@click.option(
    "--openai-url", "openai_urls", multiple=True, help="OpenAI-compatible server of the model; several are a pool."
)
@click.option("--openai-token-env", metavar="NAME", help="Environment variable with the bearer token of these servers.")
@click.option("--tokenizer", metavar="FOLDER", help="With --openai-url: the model's tokenizer.")
@click.option("--chat-template", type=click.Choice(CHAT_TEMPLATES), help="Chat format of the model.  [default: chatml]")
@click.option("--backend", type=click.Choice(BACKENDS), help="What runs the checkpoint.  [default: paddle]")
@click.option(
    "--fastdeploy-option",
    "fastdeploy_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="With --backend fastdeploy: an option of it, such as tensor_parallel_size=2; may be given several times.",
)
@click.option("--dtype", type=click.Choice(DTYPES), help="Of the checkpoint's weights.  [default: float32]")
@click.option("--judge-deadline-s", type=float, help="Seconds that a model may take for one call.  [default: 600]")
@click.option(
    "--judge-option",
    "judge_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of the judge, such as permutations=2; may be given several times.",
)
@click.option(
    "--extractor-type",
    type=click.Choice(EXTRACTOR_TYPES),
    help="How a translation is taken out of a response.  [default: line]",
)
@click.option("--default-reward", type=float, help="POST /: reward of a row without a score.  [default: 0.0]")
@click.option("--score-scale-factor", type=float, help="POST /: reward per point of score.  [default: 0.1]")
@click.option(
    "--drain-timeout",
    "drain_timeout_s",
    type=float,
    metavar="SECONDS",
    help="After SIGTERM, for the requests that were accepted.  [default: --judge-deadline-s]",
)
@click.option("--log-file", "--log_file", metavar="FILE", help="Write the log there as well as to stderr.")
@click.option("--token-file", metavar="FILE", help="File with the token that clients must send.")
@click.option("--token-env", metavar="NAME", help="Environment variable with the token that clients must send.")
def main(
    config: str | None,
    openai_urls: tuple[str, ...],
    judge_options: tuple[str, ...],
    fastdeploy_options: tuple[str, ...],
    **options: Any,
) -> None:
    """Serve a judge to trainers: PaddleNLP's reward protocol at POST /, the group protocol at POST /v1/score."""

    def serve_configured() -> None:
        lists = {
            "openai_urls": list(openai_urls) or None,
            "judge_options": read_assignments(judge_options, "judge option"),
            "fastdeploy_options": read_assignments(fastdeploy_options, "FastDeploy option"),
        }
        run(load_settings(config, options | lists))

    run_main(serve_configured)


def run(settings: Settings) -> None:
    """Serves the judge that the settings name until SIGTERM or SIGINT. Raises UserError when it cannot start."""
    configure_logging(settings.log_file)
    token = read_token(settings.token_file, settings.token_env)
    # Bound before the model is loaded, which may take minutes: a port in use is an error at once, early clients wait.
    with bind(settings.host, settings.port, token) as listener:
        serve(settings, build_hosted_judge(settings), token, listener)


def serve(
    settings: Settings, judge: Judge | HostedJudge, token: str | None, listener: socket.socket | None = None
) -> None:
    """Serves `judge` until SIGTERM or SIGINT; prints `listening on URL` once connections are accepted.

    Then it takes no more requests and ends once those it has are answered. Raises SystemExit 1 where `drain_timeout_s`
    or a second signal ended it before.
    """
    try:
        from .app import RewardApp
        from .front import Front
    except ImportError as error:
        raise UserError(
            f"the reward server needs the package {error.name}: install it with `pip install 'paddle-grrm[server]'`"
        ) from error
    listener = listener or bind(settings.host, settings.port, token)
    app = RewardApp(settings, judge, token)
    front = Front(app.flask, settings, listener, app.refusal, app.metrics)
    stops = _Stops(front.pull_trigger)
    host, port = listener.getsockname()[:2]
    click.echo(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}")
    freeze_gc()  # or each collection during a request would also go through all that was imported
    while not stops.count:
        front.turn(LONGEST_TURN_S)
    app.is_stopping = True
    n_unanswered = _drain(front, stops, settings)
    if n_unanswered:
        logger.error("ended with %d requests unanswered", n_unanswered)
    if n_unanswered or not _is_idle(app.hosted):
        _leave(1 if n_unanswered else 0)


class _Stops:
    """Counts SIGTERM and SIGINT; the first asks for an orderly end, the second for an end at once."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.count = 0
        self._wake = wake
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self._wake()


def _drain(front: Front, stops: _Stops, settings: Settings) -> int:
    """Answers what was accepted; returns how many connections are still owed an answer at the end."""
    allowed_s = settings.judge_deadline_s if settings.drain_timeout_s is None else settings.drain_timeout_s
    ends = time.monotonic() + allowed_s
    owed = front.served()
    logger.info("stopping: %d connections are owed an answer, for which there are %g s", len(owed), allowed_s)
    while owed and stops.count < 2 and time.monotonic() < ends:
        front.turn(min(LONGEST_TURN_S, max(ends - time.monotonic(), 0.0)))
        served = front.served()
        owed = [channel for channel in owed if channel in served]
    return len(owed)


def configure_logging(log_file: str | None) -> None:
    """Logs to stderr and, when named, to a file. Raises UserError when the file cannot be written."""
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    if log_file is not None:
        try:
            handlers.append(logging.FileHandler(log_file, encoding="utf-8"))
        except OSError as error:
            raise UserError(f"cannot write the log file {log_file}: {error.strerror}") from error
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", handlers=handlers, force=True
    )


def _is_idle(hosted: HostedJudge) -> bool:
    idle = threading.Event()
    hosted.when_idle(idle.set)
    return idle.is_set()


def _leave(code: int) -> None:
    """End the process at once, with what its threads do: a model's would make Python's teardown abort."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)
