"""`grrm sft`, `rl`, `reward` and `dpo`: the training scripts, on one process or several; and `grrm judge-server`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from grrm.data.atomic import check_writable
from grrm.errors import UserError

# Of `grrm.config.stages`, spelt out so that `grrm --help` need not import them; a test compares them.
STAGES = {
    "rl": "Reinforcement learning of a translation policy.",
    "sft": "Supervised cold start of a translation policy.",
    "dpo": "Preference optimization of a policy on pairs.",
    "reward": "Training of a reward model with a value head.",
}
# Without its settings and hints, 40 lines before the first of the run; PADDLE_LOG_LEVEL brings them back.
_LAUNCHER = ["-W", "ignore:No ccache found", "-m", "grrm.cli.launcher", "--log_level", "WARNING"]
_HELP = """{summary}

CONFIG is an argument file, such as those of llm/config/qwen. Each --key value replaces what it says of that key; see
docs/arguments.md, or the list printed without CONFIG. This is run_{name}.py: with --nproc on several processes, through
python -m paddle.distributed.launch, which has further options, for more machines."""


def training_command(name: str, summary: str) -> click.Command:
    """Return the command of a stage; what is not its own option is left to the stage's script."""

    @click.command(
        name,
        short_help=summary,
        help=_HELP.format(summary=summary, name=name),
        context_settings={"ignore_unknown_options": True},
    )
    @click.option(
        "--nproc",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Processes on this machine, one per device; their logs go to the folder rank-logs of output_dir.",
    )
    @click.argument("words", metavar="CONFIG [--KEY VALUE]...", nargs=-1, type=click.UNPROCESSED)
    def train(nproc: int, words: tuple[str, ...]) -> None:
        if nproc > 1 and words:
            launch(name, nproc, words)
        importlib.import_module(f"grrm.run_{name}").main(words)

    return train


def launch(name: str, nproc: int, words: Sequence[str]) -> NoReturn:
    """Become Paddle's launcher of a stage's script: its output, signals and exit status are those of the command.

    Raises UserError before that for mistakes in the argument file, for a pipe in its place, and for an `output_dir`
    that cannot be written.
    """
    if Path(words[0]).is_fifo():
        raise UserError(f"the argument file {words[0]!r} is a pipe, which --nproc {nproc} cannot share: name a file")
    from grrm.config.command_line import read_command_line
    from grrm.config.stages import STAGES as CONFIGS

    stage = next(stage for stage in CONFIGS if stage.name == name)
    config = read_command_line(stage.config, words, nproc)
    assert config is not None  # None follows a question for help, which click has answered
    script = importlib.import_module(f"grrm.run_{name}").__file__
    logs = Path(config.output_dir, "rank-logs")
    check_writable(logs / "workerlog.0")
    options = ["--nproc_per_node", str(nproc), "--log_dir", str(logs)]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *_LAUNCHER, *options, str(script), *words])


class _ServerCommand(click.Command):
    """The reward server's own command line, imported only when it runs or its options are asked for."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The options of `reward_server.py`."""
        return _server().get_params(ctx)

    def invoke(self, ctx: click.Context) -> Any:
        """Serve."""
        return ctx.invoke(_server().callback, **ctx.params)  # type: ignore[arg-type]


def _server() -> click.Command:
    from grrm_reward_server.main import main

    return main  # type: ignore[no-any-return]


judge_server = _ServerCommand(
    "judge-server",
    short_help="Serve a judge to trainers: reward_server.py.",
    help="Serve a judge to trainers: PaddleNLP's reward protocol at POST /, the group protocol at POST /v1/score.",
)
TRAINING_COMMANDS = [training_command(name, summary) for name, summary in STAGES.items()]
