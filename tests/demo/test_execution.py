"""Running stages: reuse, resume, failure and interruption, with tiny scripts in place of trainers."""

import io
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from rich.console import Console
from support.stopped_clock import eventually

from grrm.demo.execution import StageFailure, StageRunner
from grrm.demo.stages import Stage


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(autouse=True)
def look_often(monkeypatch):
    monkeypatch.setattr("grrm.demo.execution.POLL_S", 0.02)


def a_runner(tmp_path, server_url=lambda options: "http://unused"):
    console = Console(file=io.StringIO(), force_terminal=False)
    return StageRunner(tmp_path / "out", tmp_path, console, server_url)


def a_stage(tmp_path, code, **changes):
    folder = tmp_path / "out" / "work"
    options = {
        "name": "seed1/sft",
        "title": "SFT",
        "folder": folder,
        "outputs": [folder / "done.txt"],
        "timeout_s": 120.0,
    }
    return Stage(command=[sys.executable, "-c", textwrap.dedent(code), str(folder)], **(options | changes))


WRITES = "import pathlib, sys; (pathlib.Path(sys.argv[1]) / 'done.txt').write_text('x'); print('ran')"


def test_finished_stages_are_reused(tmp_path):
    stage = a_stage(tmp_path, WRITES)
    first, second = a_runner(tmp_path), a_runner(tmp_path)
    seconds = first.run([stage])
    assert seconds["seed1/sft"] > 0
    assert second.run([stage]) == seconds
    assert second.console.file.getvalue() == "[1/1] SFT: finished earlier\n"
    assert first.log_of(stage).read_text() == "ran\n"


def test_result_is_shown_where_it_is_worth_it(tmp_path):
    runner, silent = a_runner(tmp_path), a_runner(tmp_path)
    runner.run([a_stage(tmp_path, WRITES, ends_with_result=True)])
    assert runner.console.file.getvalue().splitlines()[-1].endswith(" s: ran")
    silent.run([a_stage(tmp_path, WRITES, name="other")])
    assert "ran" not in silent.console.file.getvalue()


def test_failure_names_stage_status_and_log_and_keeps_the_last_words(tmp_path):
    code = """
        import sys
        print("starting", flush=True); print("error: no such key", file=sys.stderr); sys.exit(7)
    """
    runner = a_runner(tmp_path)
    with pytest.raises(StageFailure, match=r"stage 'seed1/sft' ended with status 7: read .*seed1-sft.log") as failure:
        runner.run([a_stage(tmp_path, code)])
    assert failure.value.last_lines == ["starting", "error: no such key"]


def test_stage_that_forgets_its_output_is_a_failure(tmp_path):
    with pytest.raises(StageFailure, match=r"did not write .*done.txt"):
        a_runner(tmp_path).run([a_stage(tmp_path, "print('nothing')")])


def test_failed_training_resumes_in_its_folder_and_its_time_adds_up(tmp_path):
    code = """
        import pathlib, sys, time
        folder = pathlib.Path(sys.argv[1])
        checkpoint = folder / "checkpoint"
        if not checkpoint.exists():
            checkpoint.write_text("1"); time.sleep(0.3); sys.exit(1)
        (folder / "done.txt").write_text("resumed")
    """
    stage = a_stage(tmp_path, code, metrics=tmp_path / "out" / "work" / "metrics.jsonl")
    with pytest.raises(StageFailure):
        a_runner(tmp_path).run([stage])
    seconds = a_runner(tmp_path).run([stage])
    assert (stage.folder / "done.txt").read_text() == "resumed"
    assert seconds["seed1/sft"] > 0.3


def test_stage_past_its_deadline_is_stopped(tmp_path):
    with pytest.raises(StageFailure, match="was stopped after 0 s"):
        a_runner(tmp_path).run([a_stage(tmp_path, "import time; time.sleep(60)", timeout_s=0.2)])


def test_only_stages_that_name_the_server_start_it_and_get_its_url(tmp_path):
    asked = []
    runner = a_runner(tmp_path, lambda options: asked.append(list(options)) or "http://127.0.0.1:9")
    runner.run([a_stage(tmp_path, WRITES, name="plain")])
    assert asked == []
    code = "import pathlib, sys; (pathlib.Path(sys.argv[1]) / 'done.txt').write_text(sys.argv[2])"
    stage = a_stage(tmp_path, code, name="rl", folder=tmp_path / "out" / "rl", outputs=[])
    command = [*stage.command[:3], str(stage.folder), "{reward_server}"]
    stage = Stage("rl", "RL", command, stage.folder, reward_server=["--judge", "gqm"])
    runner.run([stage])
    assert (stage.folder / "done.txt").read_text() == "http://127.0.0.1:9"
    runner.run([stage])
    assert asked == [["--judge", "gqm"]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupt_stops_the_child_before_it_is_passed_on(tmp_path, number):
    """Ctrl-C reaches only the foreground process, because stages run in sessions of their own."""
    script = tmp_path / "script.py"
    pid_file = tmp_path / "child.pid"
    child_code = (
        f"import os, time, pathlib; pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid())); time.sleep(60)"
    )
    script.write_text(
        textwrap.dedent(f"""
        import signal
        import sys
        from pathlib import Path
        from rich.console import Console
        from grrm.demo.execution import StageRunner
        from grrm.demo.processes import signals_as_interrupts
        from grrm.demo.stages import Stage
        here = Path({str(tmp_path)!r})
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever these tests run under
        runner = StageRunner(here / "out", here, Console(), lambda: "")
        try:
            with signals_as_interrupts():
                runner.run([Stage("s", "S", [sys.executable, "-c", {child_code!r}], here / "out" / "s")])
        except KeyboardInterrupt:
            sys.exit(130)
        """)
    )
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.DEVNULL)
    eventually(lambda: pid_file.exists() and pid_file.read_text())
    process.send_signal(number)
    assert process.wait(120) == 130
    child = int(pid_file.read_text())
    eventually(lambda: not is_running(child))  # once killed it is still there until somebody asks how it ended
