"""How an entry point ends that a mistake stopped: with one sentence on stderr."""

from __future__ import annotations

import pytest

from grrm.entry import run_main


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
