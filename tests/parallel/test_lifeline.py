"""A process whose peer is gone ends with one sentence, whatever it is doing."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from grrm.parallel.lifeline import keep_alive, watch_peers

START = """
import socket, sys, time
from grrm.parallel import lifeline
lifeline.GRACE_S = 0.2
peers = {int(rank): socket.socket(fileno=int(fd)) for rank, fd in (one.split("=") for one in sys.argv[2:])}
mine = lifeline.Lifeline(peers, int(sys.argv[1]), 3)
print("watching", flush=True)
"""
BUSY = START + "time.sleep(60)"
DONE_BY_ITSELF = START + "sys.stdin.read(); mine.leave(); print('done')"
FAILS_IN_A_COLLECTIVE = START + "sys.stdin.read(); raise RuntimeError('Connection reset by peer')"


def connected() -> tuple[socket.socket, socket.socket]:
    """Two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        return one, server.accept()[0]


ABORTS = START + "import ctypes; sys.stdin.read(); ctypes.CDLL('libstdc++.so.6')._ZSt9terminatev()"


@contextmanager
def watching(script: str, rank: int, *peers: int) -> Iterator[tuple[subprocess.Popen[str], dict[int, socket.socket]]]:
    """A process that runs `script` as `rank`, and our ends of its connections to `peers`."""
    pairs = {peer: connected() for peer in peers}
    theirs = {peer: pair[1].fileno() for peer, pair in pairs.items()}
    command = [sys.executable, "-c", script, str(rank), *(f"{peer}={fd}" for peer, fd in theirs.items())]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, **pipes, text=True, pass_fds=list(theirs.values()))  # type: ignore[call-overload]
    for pair in pairs.values():
        pair[1].close()
    try:
        assert process.stdout.readline() == "watching\n"
        yield process, {peer: pair[0] for peer, pair in pairs.items()}
    finally:
        process.kill()
        process.communicate()
        for pair in pairs.values():
            pair[0].close()


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=120)
    return process.returncode, errors


def test_a_peer_that_is_gone_ends_a_process_that_is_busy():
    with watching(BUSY, 1, 0) as (process, ends):
        ends[0].close()
        status, errors = end(process)
    assert status == 2
    assert errors.startswith("error: rank 0 (")
    assert "of the 3 of this job is gone, so rank 1 ends too" in errors
    assert errors.count("\n") == 1


def test_the_first_rank_tells_the_others_which_one_is_gone():
    with watching(BUSY, 0, 1, 2) as (process, ends):
        ends[2].close()
        assert ends[1].recv(100).startswith(b"2 (")
        status, errors = end(process)
    assert (status, errors.startswith("error: rank 2 (")) == (2, True)
    with watching(BUSY, 1, 0) as (process, ends):
        ends[0].sendall(b"2 (10.0.0.3)")
        assert end(process)[1].startswith("error: rank 2 (10.0.0.3) of the 3")


def test_a_peer_that_has_done_its_work_is_not_missed():
    with watching(DONE_BY_ITSELF, 1, 0) as (process, ends):
        ends[0].sendall(b"bye\n")
        ends[0].shutdown(socket.SHUT_WR)
        assert end(process) == (0, "")
        assert ends[0].recv(100) == b"bye\n"


def test_an_error_that_a_lost_peer_explains_has_no_stack_trace():
    with watching(FAILS_IN_A_COLLECTIVE, 1, 0) as (process, ends):
        ends[0].close()
        status, errors = end(process)
    assert (status, errors.count("\n"), errors.startswith("error: rank 0 (")) == (2, 1, True)


def test_an_error_of_its_own_keeps_its_stack_trace():
    with watching(FAILS_IN_A_COLLECTIVE, 1, 0) as (process, _):
        status, errors = end(process)
    assert status == 1
    assert "Traceback" in errors
    assert "rank" not in errors


@pytest.mark.skipif(sys.platform != "linux", reason="the C++ library has another name")
def test_an_abort_that_a_lost_peer_explains_says_so_and_another_aborts():
    with watching(ABORTS, 1, 0) as (process, ends):
        ends[0].close()
        status, errors = end(process)
    assert (status, errors.count("\n"), errors.startswith("error: rank 0 (")) == (2, 1, True)
    with watching(ABORTS, 1, 0) as (process, _):
        status, errors = end(process)
    assert (status, "terminate called" in errors) == (-signal.SIGABRT, True)


def test_one_process_has_nobody_to_watch():
    hook = sys.excepthook
    watch_peers(1).leave()
    assert sys.excepthook is hook


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="this system has no such option")
def test_a_machine_that_is_cut_off_is_given_up_within_20_seconds():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        keep_alive(one)
        idle, interval, count = (
            one.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
        )
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert idle + interval * count <= 20
