"""Command line of the reward server."""

from __future__ import annotations

import logging
import signal
import sys
from types import FrameType
from typing import Any

import click

from grrm.errors import UserError
from grrm.gqm.extraction import EXTRACTOR_TYPES
from grrm.judges.interface import Judge
from grrm.judges.registry import EMBEDDED_JUDGES, build_judge

from .access import bind, read_token
from .settings import Settings, load_settings

SPARE_THREADS = 4  # beyond the scoring requests, for probes and refusals
IDLE_CONNECTIONS = 1000


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--host", help="Address to listen on; any other than loopback needs a token.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="Port to listen on, 0 for a free one.  [default: 8731]")
@click.option("--config", metavar="FILE", help="YAML file of settings; the options here override it.")
@click.option("--judge", type=click.Choice(EMBEDDED_JUDGES), help="Judge to host.  [default: chrf]")
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
def main(config: str | None, **options: Any) -> None:
    """Serve a judge to trainers: PaddleNLP's reward protocol at POST /, the group protocol at POST /v1/score."""
    try:
        run(load_settings(config, options))
    except UserError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)


def run(settings: Settings) -> None:
    """Serves the judge that the settings name until SIGTERM or SIGINT. Raises UserError when it cannot start."""
    configure_logging(settings.log_file)
    serve(settings, build_judge(settings.judge), read_token(settings.token_file, settings.token_env))


def serve(settings: Settings, judge: Judge, token: str | None) -> None:
    """Serves `judge` until SIGTERM or SIGINT; prints `listening on URL` once connections are accepted."""
    try:
        from waitress.server import create_server

        from .app import create_app
    except ImportError as error:
        raise UserError(
            f"the reward server needs the package {error.name}: install it with `pip install 'paddle-grrm[server]'`"
        ) from error
    listener = bind(settings.host, settings.port, token)
    server = create_server(
        create_app(settings, judge, token),
        sockets=[listener],
        threads=settings.max_in_flight + SPARE_THREADS,
        connection_limit=settings.max_in_flight + IDLE_CONNECTIONS,
        max_request_body_size=2 * settings.max_body_bytes,  # up to here Flask's refusal, which is JSON, comes first
        asyncore_use_poll=True,
        ident=None,
    )
    host, port = listener.getsockname()[:2]
    signal.signal(signal.SIGTERM, _stop)
    click.echo(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}")
    server.run()


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


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)
