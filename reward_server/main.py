"""Command line of the reward server."""

from __future__ import annotations

from typing import Any, get_args

import click

from grrm.engine.options import BACKENDS, DTYPES
from grrm.entry import read_assignments, run_main
from grrm.errors import UserError
from grrm.gqm.chat import CHAT_TEMPLATES
from grrm.gqm.extraction import EXTRACTOR_TYPES
from grrm.judges.registry import judge_help
from grrm.startup import share_heap

from .hosting import build_hosted_judges
from .settings import LogFormat, LogLevel, Settings, load_settings


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--host", help="Address to listen on; any other than loopback needs a token.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="Port to listen on, 0 for a free one.  [default: 8731]")
@click.option("--config", metavar="FILE", help="YAML file of settings; the options here override it.")
@click.option(
    "--judge",
    metavar="NAME",
    help=f"Judge to host: {judge_help()}; mixture; or a function of your own, MODULE:FUNCTION.  [default: chrf]",
)
@click.option("--model", help="Folder of the judge's checkpoint; with --openai-url the model's name there.")
@click.option(
    "--openai-url", "openai_urls", multiple=True, help="OpenAI-compatible server of the model; repeat for a pool."
)
@click.option("--openai-token-env", metavar="NAME", help="Environment variable with the bearer token of these servers.")
@click.option("--tokenizer", metavar="FOLDER", help="With --openai-url: the model's tokenizer.")
@click.option("--chat-template", type=click.Choice(CHAT_TEMPLATES), help="Format.  [default: the model's, else chatml]")
@click.option("--backend", type=click.Choice(BACKENDS), help="Engine for the checkpoint.  [default: paddle]")
@click.option(
    "--fastdeploy-option",
    "fastdeploy_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="With --backend fastdeploy: an option of it, such as tensor_parallel_size=2; may be given several times.",
)
@click.option("--dtype", type=click.Choice(DTYPES), help="Of the weights.  [default: auto; on a GPU as stored]")
@click.option("--judge-deadline-s", type=float, help="Timeout of one model call in seconds.  [default: 600]")
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
    help="How to extract the translation from a response.  [default: line]",
)
@click.option("--default-reward", type=float, help="POST /: reward of a row without a score.  [default: 0.0]")
@click.option("--score-scale-factor", type=float, help="POST /: factor from score to reward.  [default: 0.1]")
@click.option(
    "--drain-timeout",
    "drain_timeout_s",
    type=float,
    metavar="SECONDS",
    help="After SIGTERM, to complete accepted requests.  [default: the judge's deadline]",
)
@click.option("--log-file", "--log_file", metavar="FILE", help="Log file, in addition to stderr.")
@click.option("--log-format", type=click.Choice(get_args(LogFormat)), help="Format of the log.  [default: text]")
@click.option(
    "--log-level",
    type=click.Choice(get_args(LogLevel)),
    help="Least level on stderr; info has a line per request, as the log file has.  [default: warning]",
)
@click.option("--certfile", metavar="FILE", help="Certificate chain (PEM), enables HTTPS.")
@click.option("--keyfile", metavar="FILE", help="Private key, if not in the same file.")
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
    try:
        from .app import RewardApp
        from .running import listening, serve_until_stopped
    except ImportError as error:
        raise UserError(
            f"the reward server needs the package {error.name}: install it with `pip install 'paddle-grrm[server]'`"
        ) from error
    share_heap()
    with listening(settings) as (listener, token):
        app = RewardApp(settings, build_hosted_judges(settings), token)
        slowest_s = max(judge_settings.longest_call_s for judge_settings in settings.named_judges().values())
        allowed_s = slowest_s if settings.drain_timeout_s is None else settings.drain_timeout_s
        serve_until_stopped(app, settings, listener, allowed_s)
