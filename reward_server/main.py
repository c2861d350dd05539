"""Command line of the reward server."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from types import FrameType
from typing import Any

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

SPARE_THREADS = 4  # beyond the scoring requests, for probes and refusals
IDLE_CONNECTIONS = 1000
RECEIVE_BYTES = 2**16  # waitress's default is 8 KiB: fifty turns of its loop for a trainer's request


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
    """Serves `judge` until SIGTERM or SIGINT; prints `listening on URL` once connections are accepted."""
    try:
        from waitress.server import create_server

        from .app import create_app
    except ImportError as error:
        raise UserError(
            f"the reward server needs the package {error.name}: install it with `pip install 'paddle-grrm[server]'`"
        ) from error
    listener = listener or bind(settings.host, settings.port, token)
    server = create_server(
        create_app(settings, judge, token),
        sockets=[listener],
        threads=settings.max_in_flight + SPARE_THREADS,
        connection_limit=settings.max_in_flight + IDLE_CONNECTIONS,
        max_request_body_size=2 * settings.max_body_bytes,  # up to here Flask's refusal, which is JSON, comes first
        recv_bytes=RECEIVE_BYTES,
        asyncore_use_poll=True,
        ident=None,
    )
    host, port = listener.getsockname()[:2]
    signal.signal(signal.SIGTERM, _stop)
    click.echo(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}")
    freeze_gc()  # or each collection during a request would also go through all that was imported
    server.run()
    if isinstance(judge, HostedJudge):
        _leave_if_busy(judge)


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


def _leave_if_busy(hosted: HostedJudge) -> None:
    """End the process at once while a model generates: its thread would make Python's teardown abort."""
    idle = threading.Event()
    hosted.when_idle(idle.set)
    if not idle.is_set():
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)
