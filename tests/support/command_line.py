"""Python and the command `grrm` as processes of their own, and in this one; and how they end that a mistake stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from grrm import cli
from grrm.entry import run_main
from grrm.errors import UserError

GRRM = [sys.executable, "-m", "grrm.cli"]


def python(
    *arguments: object, stdin: str = "", cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run it to the end, with this text on its standard input; its status is not checked."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=600,
        check=False,
        cwd=cwd,
        env=os.environ | environment,
    )


def grrm(
    *arguments: object, stdin: str = "", cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run it as `python` is run."""
    return python(*GRRM[1:], *arguments, stdin=stdin, cwd=cwd, **environment)


def mistake(done: subprocess.CompletedProcess[str]) -> str:
    """What a command said that ended with status 2: one sentence."""
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith("error: ")
    return done.stderr


def invoke(*arguments: object, stdin: str = "", **environment: str) -> Result:
    """Run `grrm` in this process; raises what the command raises."""
    options = {"input": stdin, "env": environment, "catch_exceptions": False, "standalone_mode": False}
    done = CliRunner().invoke(cli.grrm, list(map(str, arguments)), **options)
    assert done.exit_code == 0, done.output
    return done


def refusal(*arguments: object, **options: str) -> str:
    """The sentence with which `grrm` refuses a command line in this process."""
    with pytest.raises((UserError, click.ClickException)) as caught:
        invoke(*arguments, **options)
    error = caught.value
    return error.format_message() if isinstance(error, click.ClickException) else str(error)


def ends_with_a_sentence(main, capsys: pytest.CaptureFixture[str], status: int = 2) -> str:
    """Run `main` in this process as an entry script would; its sentence."""
    with pytest.raises(SystemExit) as caught:
        run_main(main)
    assert caught.value.code == status
    return the_sentence(capsys.readouterr().err)


def the_sentence(stderr: str) -> str:
    """The one error line, without its label; a traceback is a failure."""
    lines = [line for line in stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, stderr
    assert "Traceback" not in stderr
    return lines[0].removeprefix("error: ")


def the_mistakes(stderr: str) -> list[str]:
    """The sentences below an error line that counts several mistakes."""
    lines = stderr.splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("error: ")) + 1
    found = [line.removeprefix("  ") for line in lines[first:] if line.startswith("  ")]
    assert the_sentence(stderr).endswith(f": {len(found)} mistakes")
    return found
