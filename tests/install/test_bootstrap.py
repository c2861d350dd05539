"""tools/bootstrap.sh with a stand-in for Python, which records what it is asked to do and installs nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = ("setup.py", "pyproject.toml", "constraints.txt", "tools/bootstrap.sh")

# Reads its version from the file VERSION beside it; `-m venv DIR` copies both, `-m pip install` may be told to fail.
FAKE_PYTHON = r"""#!/bin/sh
here=$(dirname "$0")
case "$*" in
*version_info*) cat "$here/VERSION" ;;
*"-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python && cp "$here/VERSION" .venv/bin/ ;;
*"pip install"*) echo "installed with $(cat "$here/VERSION")" >>"$FAKE_LOG"; [ ! -e "$FAKE_LOG.fail" ] ;;
*"pip --version"*) [ ! -e "$here/no_pip" ] ;;
esac
"""


class Checkout:
    """A copy of what the script reads, in a folder whose name has spaces, with pythons in folders of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.pythons, self.log = folder / "a check out", folder / "pythons", folder / "log"
        for name in FILES:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.folder / name)
        self.log.touch()

    def python(self, version: str) -> Path:
        path = self.pythons / version / "python3"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FAKE_PYTHON)
        path.chmod(0o755)
        (path.parent / "VERSION").write_text(f"{version}\n")
        return path

    def run(self, on_path: str = "3.11", python: object = None) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": os.pathsep.join([str(self.python(on_path).parent), "/usr/bin", "/bin"]),
            "FAKE_LOG": str(self.log),
            **({} if python is None else {"PYTHON": str(python)}),
        }
        return subprocess.run(
            ["sh", self.folder / "tools/bootstrap.sh"],
            env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    def installations(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def assert_one_sentence(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


def test_the_second_run_installs_nothing_and_says_nothing(checkout):
    first, second = checkout.run(), checkout.run()
    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert checkout.installations() == ["installed with 3.11"]
    assert second.stdout == second.stderr == ""


@pytest.mark.parametrize("name", FILES[:3])
def test_changed_requirements_are_installed(checkout, name):
    checkout.run()
    path = checkout.folder / name
    path.write_text("# changed\n" + path.read_text())
    assert checkout.run().returncode == 0
    assert len(checkout.installations()) == 2


def test_a_lint_setting_does_not_reinstall(checkout):
    checkout.run()
    with (checkout.folder / "pyproject.toml").open("a") as file:
        file.write("\n[tool.other]\nkey = 1\n")
    checkout.run()
    assert len(checkout.installations()) == 1


def test_a_moved_checkout_is_installed_again(checkout):
    checkout.run()
    (checkout.folder / ".venv/bin/activate").touch()
    checkout.folder = checkout.folder.rename(checkout.folder.with_name("moved here"))
    checkout.run()
    assert len(checkout.installations()) == 2
    assert not (checkout.folder / ".venv/bin/activate").exists(), "which names the folder it was made in"


def test_a_failed_installation_is_reported_and_taken_up_again(checkout):
    fail = Path(f"{checkout.log}.fail")
    fail.touch()
    assert_one_sentence(checkout.run(), "pip", "run make again")
    fail.unlink()
    assert checkout.run().returncode == 0
    assert len(checkout.installations()) == 2


def test_an_environment_left_without_pip_is_made_anew(checkout):
    checkout.run()
    (checkout.folder / ".venv/.installed").unlink()
    (checkout.folder / ".venv/bin/no_pip").touch()
    assert checkout.run().returncode == 0
    assert not (checkout.folder / ".venv/bin/no_pip").exists()


def test_python_picks_the_interpreter_even_when_another_is_installed(checkout):
    checkout.run()
    assert checkout.run(python=checkout.python("3.12")).returncode == 0
    assert checkout.run().returncode == 0
    assert checkout.installations() == ["installed with 3.11", "installed with 3.12"]


@pytest.mark.parametrize("version", ["3.9", "3.13", "2.7", ""])
def test_an_unsuitable_python_is_one_sentence_and_leaves_the_environment_alone(checkout, version):
    checkout.run()
    python = checkout.python(version or "nothing")
    (python.parent / "VERSION").write_text(version)
    assert_one_sentence(checkout.run(python=python), str(python), "3.10, 3.11 or 3.12")
    assert checkout.run().returncode == 0
    assert len(checkout.installations()) == 1


def test_a_python_that_is_not_there_is_one_sentence(checkout):
    assert_one_sentence(checkout.run(python="/no/such python"), "/no/such python", "not found")


def test_without_a_suitable_python_on_the_path_one_is_asked_for(checkout, tmp_path):
    tools = tmp_path / "tools only"
    tools.mkdir()
    for name in ("sh", "dirname", "cat", "sed", "cksum", "rm"):
        (tools / name).symlink_to(shutil.which(name))
    done = subprocess.run(
        ["sh", checkout.folder / "tools/bootstrap.sh"],
        env={"PATH": str(tools)}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert_one_sentence(done, "no Python 3.10, 3.11 or 3.12", "PYTHON=")
