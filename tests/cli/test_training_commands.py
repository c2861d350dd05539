"""`grrm sft`, `rl`, `reward`, `dpo` and `judge-server` run the scripts, on one process or through Paddle's launcher."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from support.command_line import invoke
from support.rl_processes import ROOT, TinyWorld, entry_command, environment, metrics_of
from support.stopped_clock import eventually

from grrm import cli
from grrm.cli.commands.training import STAGES
from grrm.config import stages
from grrm.errors import UserError
from grrm_reward_server.main import main as reward_server

WORDS = ["X.yaml", "--learning_rate=1e-3", "--kl_coeff", "-1", "--lora", "--lr_scheduler_type", "linear", "-x"]


def test_there_is_a_command_for_every_stage():
    assert {stage.name: stage.summary for stage in stages.STAGES} == STAGES


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("nproc", [[], ["--nproc", "1"]], ids=["", "one process"])
def test_the_script_reads_its_words_unchanged(monkeypatch, name, nproc):
    read = []
    monkeypatch.setattr(importlib.import_module(f"grrm.run_{name}"), "main", read.append)
    invoke(name, *WORDS, *nproc)
    invoke(name, *nproc, *WORDS)
    assert read == [tuple(WORDS)] * 2


def test_several_processes_are_those_of_paddles_launcher(monkeypatch, world: TinyWorld, tmp_path: Path):
    became = []
    monkeypatch.setattr(os, "execv", lambda path, words: became.append(words) or 1 / 0)
    script, *words = entry_command(world, tmp_path / "out")
    with pytest.raises(ZeroDivisionError):
        invoke("rl", *words, "--nproc", "2")
    (command,) = became
    logs = str(tmp_path / "out" / "rank-logs")
    options = ["--log_level", "WARNING", "--nproc_per_node", "2", "--log_dir", logs]
    assert command[3 : 5 + len(options)] == ["-m", "grrm.cli.launcher", *options]
    assert Path(command[5 + len(options)]).resolve() == Path(script).resolve()
    assert command[6 + len(options) :] == words


def test_mistakes_are_told_before_anything_is_launched(world: TinyWorld, tmp_path: Path):
    words = entry_command(world, tmp_path / "out", global_batch_size="3")[1:]
    with pytest.raises(UserError, match="global_batch_size 3 is not a multiple of the 2 data-parallel ranks"):
        invoke("rl", *words, "--nproc", "2")


def test_an_output_dir_that_cannot_be_is_told_before_anything_is_launched(
    monkeypatch, world: TinyWorld, tmp_path: Path
):
    monkeypatch.setattr(os, "execv", lambda path, words: 1 / 0)
    (tmp_path / "file").touch()
    words = entry_command(world, tmp_path / "file")[1:]
    with pytest.raises(UserError, match=r"cannot write .*/file/rank-logs/.*Not a directory"):
        invoke("rl", *words, "--nproc", "2")


def test_the_judge_server_has_the_options_of_its_script(monkeypatch):
    command = cli.grrm.commands["judge-server"]
    assert command.get_params(click.Context(command)) == reward_server.get_params(click.Context(reward_server))
    started = []
    monkeypatch.setattr("grrm_reward_server.main.run", started.append)
    invoke("judge-server", "--port", "0", "--judge", "consensus")
    assert [(settings.port, settings.judge) for settings in started] == [(0, "consensus")]


def start(words: list[str]) -> subprocess.Popen[str]:
    """`grrm` in a process group of its own, as a terminal starts it."""
    command = [sys.executable, "-m", "grrm.cli", *words]
    out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env=environment(), cwd=ROOT, start_new_session=True, **out)


def processes_of(output: Path) -> list[int]:
    """The processes that have this folder on their command line."""
    told = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(output).encode() in _content(path)]
    return [int(path.parent.name) for path in told]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""


@pytest.mark.slow
def test_two_processes_train_and_end_with_their_status(world: TinyWorld, tmp_path: Path):
    words = entry_command(world, tmp_path / "out", max_steps="1")[1:]
    process = start(["rl", "--nproc", "2", *words])
    told, _ = process.communicate(timeout=600)
    assert process.returncode == 0, told
    assert "LAUNCH" not in told
    assert "ccache" not in told
    assert "FLAGS" not in told
    assert [line["step"] for line in metrics_of(tmp_path / "out")] == [1]
    assert {path.name for path in (tmp_path / "out/rank-logs").glob("workerlog.*")} == {"workerlog.0", "workerlog.1"}
    refused = start(["rl", "--nproc", "2", *entry_command(world, tmp_path / "new", reward_server="http://[")[1:]])
    told, _ = refused.communicate(timeout=600)
    assert refused.returncode == 2
    assert "error: " in told


SENTENCE = "error: 2 mistakes\n  one: mend it\n  two: mend that\n"
SCRIPT = f"""
import os, sys, time
rank = int(os.environ["PADDLE_TRAINER_ID"])

def fail(sentence={SENTENCE!r}, status=3):
    print(sentence, end="", file=sys.stderr, flush=True)
    sys.exit(status)

print("begun")
"""
WAIT = "\nif rank == 0:\n    time.sleep(5)\n"  # the other may end first
NOT_FIRST = "fail() if rank else fail('error: rank 1 of the 2 of this job is gone\\n', 2)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "status", "ending"),
    [
        ("rank or fail()", 3, SENTENCE),
        ("rank and fail()", 3, SENTENCE),
        ("fail()", 3, SENTENCE),
        ("1 / (1 - rank)", 1, "by zero\nerror: rank 1 ended with status 1: its log is {}\n"),
        ("rank and os.kill(os.getpid(), 9)", 247, "1 ended by SIGKILL, as where memory runs out: its log is {}\n"),
        (NOT_FIRST, 3, SENTENCE),
        ("", 0, ""),
    ],
)
def test_the_output_of_several_processes_ends_with_why_one_failed(tmp_path: Path, code, status, ending):
    script, logs = tmp_path / "script.py", tmp_path / "logs"
    script.write_text(SCRIPT + code + WAIT)
    logs.mkdir()
    for rank in range(2):
        (logs / f"workerlog.{rank}").write_text("error: of an earlier run\n")
    command = [sys.executable, "-m", "grrm.cli.launcher", "--log_level", "WARNING", "--nproc_per_node", "2"]
    command += ["--log_dir", str(logs), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=600, check=False)
    assert done.returncode == status
    assert done.stdout == "begun\n"
    assert "LAUNCH" not in done.stderr
    assert (done.stdout + done.stderr).count("error: ") == (status != 0)
    assert done.stderr.endswith(ending.format(logs / "workerlog.1"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "ending"),
    [
        (signal.SIGINT, 130, "error: interrupted\n"),
        (signal.SIGTERM, 143, "error: interrupted\n"),
        (signal.SIGKILL, -9, ""),
    ],
)
def test_a_signal_to_the_launcher_stops_every_process(world: TinyWorld, tmp_path: Path, number, status, ending):
    output = tmp_path / "out"
    process = start(["rl", "--nproc", "2", *entry_command(world, output, max_steps="100000")[1:]])
    while process.poll() is None and not (output / "metrics.jsonl").is_file():
        time.sleep(0.1)
    assert len(processes_of(output)) == 3  # the launcher, which is the command itself, and its ranks
    os.killpg(process.pid, number)
    told, _ = process.communicate(timeout=600)
    assert process.returncode == status
    assert told.endswith(ending)
    eventually(lambda: processes_of(output) == [])
