"""`grrm serve`: a checkpoint behind OpenAI's completions protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from grrm.cli.devices import environments
from grrm.cli.options import COUNT, FiniteRange
from grrm.engine.options import DTYPES
from grrm.errors import UserError
from grrm.gqm.chat import CHAT_TEMPLATES

SECONDS = FiniteRange(0, min_open=True)


@click.command()
@click.argument("model")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address; any but loopback needs a token.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 for a free one.")
@click.option("--name", help="Model name in the API.  [default: the folder's name]")
@click.option(
    "--chat-template",
    type=click.Choice(CHAT_TEMPLATES),
    help=f"Chat format.  [default: the one the checkpoint was trained with, else {CHAT_TEMPLATES[0]}]",
)
@click.option("--dtype", type=click.Choice(DTYPES), default="auto", show_default=True, help="Of the model.")
@click.option("--max-num-seqs", type=COUNT, default=256, show_default=True, help="Sequences decoded concurrently.")
@click.option(
    "--max-batched-tokens",
    type=COUNT,
    help="Prompt tokens prefilled between two decode steps.  [default: 1024; 4096 on a GPU]",
)
@click.option(
    "--memory-fraction",
    type=FiniteRange(0, 1, min_open=True, max_open=True),
    help="Share of the device's memory for the KV cache.  [default: 4 GiB]",
)
@click.option(
    "--max-in-flight", type=COUNT, default=256, show_default=True, help="Maximum concurrent requests; more get 503."
)
@click.option(
    "--request-timeout", type=SECONDS, default=1800.0, show_default=True, help="Timeout of a request in seconds."
)
@click.option(
    "--drain-timeout",
    type=SECONDS,
    help="Seconds after SIGTERM to complete accepted requests.  [default: --request-timeout]",
)
@click.option(
    "--devices",
    metavar="LIST",
    help="One process with a copy of the model per GPU, such as 0-7 or 0,2; cpu:2 is two without GPUs.",
)
@click.option("--tensor-parallel", type=COUNT, help="With --devices: processes that share each copy of the model.")
@click.option("--token-file", metavar="FILE", help="File with the token that clients send as their API key.")
@click.option("--token-env", metavar="NAME", help="Environment variable with that token.")
@click.option("--log-file", metavar="FILE", help="Log file, in addition to stderr.")
@click.option(
    "--log-format", type=click.Choice(("text", "json")), default="text", show_default=True, help="Log format."
)
@click.option(
    "--log-level",
    type=click.Choice(("info", "warning", "error")),
    default="warning",
    show_default=True,
    help="Least level on stderr; info has a line per request, as the log file has.",
)
@click.option("--certfile", metavar="FILE", help="Certificate chain (PEM), enables HTTPS.")
@click.option("--keyfile", metavar="FILE", help="Private key, if not in the same file.")
@click.option("--allowed-host", "allowed_hosts", multiple=True, help="Host name that clients may use for this server.")
def serve(
    model: str,
    name: str | None,
    request_timeout: float,
    drain_timeout: float | None,
    chat_template: str | None,
    max_batched_tokens: int | None,
    allowed_hosts: tuple[str, ...],
    devices: str | None,
    tensor_parallel: int | None,
    **options: Any,
) -> None:
    """Serve the checkpoint MODEL to OpenAI's clients: /v1/completions, /v1/chat/completions, /v1/models.

    Requests join the running batch on arrival. After SIGTERM the server answers accepted requests, then exits.
    """
    from grrm.engine.open import open_model, prepare_paddle
    from grrm.engine.scheduler import BatchScheduler
    from grrm.models.trained_with import checkpoint_template
    from grrm_reward_server.completions.app import CompletionsApp
    from grrm_reward_server.completions.replies import ServedModel
    from grrm_reward_server.processes import Process, fork_replicas
    from grrm_reward_server.running import listening, serve_until_stopped
    from grrm_reward_server.settings import CompletionSettings

    engine = {key: options.pop(key) for key in ("dtype", "max_num_seqs", "memory_fraction")}
    settings = CompletionSettings(request_timeout_s=request_timeout, allowed_hosts=list(allowed_hosts), **options)
    processes = _processes(devices, tensor_parallel)
    template = checkpoint_template(model, chat_template)
    with listening(settings) as (listener, token):
        process = fork_replicas(processes, tensor_parallel or 1) if processes else Process()
        if process.n_ranks > 1:
            prepare_paddle(quiet=True)
            from grrm.engine.paddle.led_engine import LeadingEngine, follow, join_tensor_ranks

            engine["part"] = join_tensor_ranks(model, process.rank, process.n_ranks)
        opened = open_model(model, chat_template=template, prefill_tokens=max_batched_tokens, quiet=True, **engine)
        if process.rank:
            follow(opened.engine, process.links[0])
        session_engine = LeadingEngine(opened.engine, process.links) if process.links else opened.engine
        served = ServedModel(
            name or Path(model).resolve().name,
            BatchScheduler(session_engine, max_batched_tokens=max_batched_tokens),
            opened.encode,
            opened.decode,
            opened.decode_all,
            opened.stop_token_ids,
            opened.render_turns,
            opened.vocabulary,
        )
        app = CompletionsApp(settings, served, token)
        serve_until_stopped(
            app, settings, listener, drain_timeout or request_timeout, is_shared=len(processes) > (tensor_parallel or 1)
        )


def _processes(devices: str | None, n_ranks: int | None) -> list[dict[str, str]]:
    """The environment of each process; none where this one is the only one."""
    if devices is None:
        if n_ranks is not None:
            raise UserError("--tensor-parallel divides a model among devices: name them with --devices")
        return []
    chosen = list(environments(devices).values())
    if len(chosen) % (n_ranks or 1):
        raise UserError(f"--tensor-parallel {n_ranks} does not divide the {len(chosen)} devices of --devices {devices}")
    return chosen
