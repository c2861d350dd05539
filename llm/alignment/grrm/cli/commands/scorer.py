"""`grrm scorer`: environments of the learned metrics."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from grrm.cli.options import FILE
from grrm.errors import UserError
from grrm.judges.metric_worker import METRIC_KINDS, environment_of, install_command

NAME = click.argument("name", type=click.Choice(list(METRIC_KINDS)))
FOLDER = click.option("--folder", type=FILE, help="Of the environment.  [default: .venv-NAME]")


@click.group()
def scorer() -> None:
    """Install learned metrics, whose packages exclude ours, in environments of their own."""


@scorer.command()
@NAME
@FOLDER
@click.option("--python", default=sys.executable, help="Python interpreter of the environment.  [default: this one]")
def install(name: str, folder: Path | None, python: str) -> None:
    """Make the environment of a metric and install its packages there. What is there already is kept."""
    kind, folder = METRIC_KINDS[name], folder or environment_of(name)
    interpreter = folder / "bin" / "python"
    if not interpreter.is_file():
        _run([python, "-m", "venv", str(folder)], f"cannot make the environment '{folder}'")
    _run(
        [str(interpreter), "-m", "pip", "install", "--disable-pip-version-check", *kind.requirements],
        f"cannot install {kind.title} in '{folder}'",
    )
    _check(name, folder)
    model = f"model {kind.default_model}" if kind.default_model else f"no model yet: {kind.model_remedy}"
    click.echo(f"{kind.title} is installed in '{folder}', {model}")


@scorer.command()
@NAME
@FOLDER
def check(name: str, folder: Path | None) -> None:
    """Say whether the environment of a metric is whole. Loads no model."""
    folder = folder or environment_of(name)
    _check(name, folder)
    click.echo(f"{METRIC_KINDS[name].title} is installed in '{folder}'")


def _check(name: str, folder: Path) -> None:
    interpreter = folder / "bin" / "python"
    remedy = f"create it with `{install_command(name, folder)}`"
    if not interpreter.is_file():
        raise UserError(f"{METRIC_KINDS[name].title} has no environment at '{folder}': {remedy}")
    package = METRIC_KINDS[name].package
    completed = subprocess.run([str(interpreter), "-I", "-c", f"import {package}"], capture_output=True, text=True)
    if completed.returncode:
        last = (completed.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(f"the environment '{folder}' cannot import {package} ({last}): {remedy}")


def _run(command: list[str], problem: str) -> None:
    """Run a command whose output the user sees. Raises UserError when it fails or is not there."""
    try:
        status = subprocess.run(command).returncode
    except OSError as error:
        raise UserError(f"{problem} ({command[0]}: {error.strerror}): name another interpreter") from error
    if status:
        raise UserError(f"{problem} (exit status {status}): see the message above, mend its cause and start again")
