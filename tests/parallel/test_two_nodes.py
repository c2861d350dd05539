"""Two launchers with one process each, as two machines have: what one of them does to the other when it is lost."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from support.rl_processes import ROOT, TinyWorld, entry_command, environment, metrics_of

from grrm.training.checkpoints import last_complete_checkpoint

LIMIT_S = 30.0


def node(command: list[str], rank: int, master: str, logs: Path) -> list[str]:
    """Run on node `rank` of two, with one process each, through Paddle's launcher."""
    launcher = [sys.executable, "-m", "paddle.distributed.launch", "--master", master, "--nnodes", "2"]
    return [*launcher, "--rank", str(rank), "--nproc_per_node", "1", "--log_dir", str(logs / str(rank)), *command]


@contextmanager
def two_nodes(commands: list[list[str]], folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Both launchers at work; what is left of them at the end is killed. Node N writes to `folder`/N.txt."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        master = f"127.0.0.1:{free.getsockname()[1]}"
    launchers = []
    for rank, command in enumerate(commands):
        with (folder / f"{rank}.txt").open("wb") as output:
            launched = node(command, rank, master, folder / "logs")
            launchers.append(
                subprocess.Popen(launched, stdout=output, stderr=subprocess.STDOUT, env=environment(), cwd=ROOT)
            )
    try:
        yield launchers
    finally:
        for launcher in launchers:
            if launcher.poll() is None:
                kill_all(launcher)


def kill_all(launcher: subprocess.Popen[bytes]) -> None:
    """A launcher and what it started, at once, as when a machine is switched off."""
    processes = [*psutil.Process(launcher.pid).children(recursive=True), psutil.Process(launcher.pid)]
    for process in processes:
        process.kill()
    launcher.wait(120)


@pytest.mark.parametrize(
    ("lost", "how"),
    [
        pytest.param(1, "machine", marks=pytest.mark.slow),
        *(pytest.param(*one, marks=pytest.mark.scale) for one in ((0, "machine"), (0, "process"), (1, "process"))),
    ],
)
def test_when_one_is_lost_the_other_ends_with_one_sentence(
    lost: int, how: str, world: TinyWorld, tmp_path: Path
) -> None:
    command = entry_command(world, tmp_path / "out", max_steps="2000", save_steps="2", save_total_limit="1")
    with two_nodes([command, command], tmp_path) as launchers:
        give_up = time.monotonic() + 280
        while last_complete_checkpoint(tmp_path / "out") is None:
            assert time.monotonic() < give_up, (tmp_path / "0.txt").read_text()[-3000:]
            time.sleep(0.1)
        if how == "machine":
            kill_all(launchers[lost])
        else:
            (worker,) = psutil.Process(launchers[lost].pid).children()
            worker.kill()
        for launcher in launchers:
            assert launcher.wait(LIMIT_S) != 0
    told = (tmp_path / f"{1 - lost}.txt").read_text()
    sentences = [line for line in told.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in told
    assert len(set(sentences)) == 1
    assert f"rank {lost} (127.0.0.1) of the 2" in sentences[0] or "1 of 2 processes ended" in sentences[0]


@pytest.mark.scale
def test_two_nodes_learn_what_one_does(world: TinyWorld, tmp_path: Path) -> None:
    commands = [entry_command(world, tmp_path / "out")] * 2
    with two_nodes(commands, tmp_path) as launchers:
        assert [launcher.wait(200) for launcher in launchers] == [0, 0]
    assert [line["step"] for line in metrics_of(tmp_path / "out")] == [1, 2, 3]


@pytest.mark.scale
def test_nodes_that_do_not_share_their_output_folder_are_told(world: TinyWorld, tmp_path: Path) -> None:
    commands = [entry_command(world, tmp_path / f"out{rank}") for rank in range(2)]
    with two_nodes(commands, tmp_path) as launchers:
        assert all(launcher.wait(100) != 0 for launcher in launchers)
    for rank in range(2):
        told = (tmp_path / f"{rank}.txt").read_text()
        assert "is not one folder: rank 1 does not see what rank 0 writes there" in told
        assert "Traceback" not in told
