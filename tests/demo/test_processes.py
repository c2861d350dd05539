"""Children are stopped with everything they started."""

import ast
import os
import signal
import subprocess
import sys
import threading

import pytest
from support.stopped_clock import PATIENCE_S, eventually

from grrm.demo.processes import Child, descendants, is_alive, tail

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
SPAWNS_A_WORKER_IN_ITS_OWN_SESSION = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], start_new_session=True)
time.sleep(60)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_worker_that_left_the_process_group_and_ignores_sigterm_is_killed_too(tmp_path):
    with Child([sys.executable, "-c", SPAWNS_A_WORKER_IN_ITS_OWN_SESSION], tmp_path / "log", cwd=tmp_path) as child:
        eventually(lambda: "up" in child.output())
        workers = descendants(child.process.pid)
        assert len(workers) == 1
        child.stop(grace_s=0.3)
    assert not any(is_alive(worker) for worker in workers)
    assert child.poll() == -signal.SIGTERM


def test_second_interrupt_while_stopping_leaves_nothing_behind(tmp_path):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    impatient = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    try:
        with Child([sys.executable, "-c", STUBBORN], tmp_path / "log", cwd=tmp_path) as child:
            eventually(lambda: "up" in child.output())
            impatient.start()
            child.stop(grace_s=0.6)
        impatient.join()
        assert child.poll() == -signal.SIGKILL
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_workers_of_a_launcher_that_was_killed_are_not_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("grrm.demo.processes.SECONDS_BETWEEN_LOOKS", 0.0)
    with Child([sys.executable, "-c", SPAWNS_A_WORKER_IN_ITS_OWN_SESSION], tmp_path / "log", cwd=tmp_path) as child:
        eventually(lambda: "up" in child.output() and child.poll() is None)
        workers = descendants(child.process.pid)
        child.process.kill()
        eventually(lambda: child.poll() is not None)
        assert all(is_alive(worker) for worker in workers)
    assert len(workers) == 1
    assert not any(is_alive(worker) for worker in workers)


KILLED = """
import os, signal, sys
from pathlib import Path
from grrm.demo.processes import Child, descendants
with Child([sys.executable, "-c", "import time; time.sleep(600)"], Path(sys.argv[1]), cwd=Path.cwd()):
    print(*descendants(os.getpid()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_a_child_ends_with_a_parent_that_was_killed(tmp_path):
    parent = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path / "log"], stdout=subprocess.PIPE, timeout=PATIENCE_S
    )
    child = ast.literal_eval(parent.stdout.decode())
    eventually(lambda: not is_alive(child))


def test_output_is_that_of_this_run_only_and_both_streams(tmp_path):
    log = tmp_path / "logs" / "stage.log"
    for word in ("first", "second"):
        with Child(
            [sys.executable, "-c", f"import os; os.write(1, b'{word}'); os.write(2, b'!')"], log, cwd=tmp_path
        ) as child:
            eventually(lambda: child.poll() is not None)
    assert child.output() == "second!"
    assert log.read_text() == "first!second!"


def test_tail_keeps_the_last_state_of_a_rewritten_line():
    assert tail("a\n\n10%\r20%\r30%\nlast\n", 2) == ["30%", "last"]
