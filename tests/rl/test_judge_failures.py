"""When the judge, or a rank, fails in the middle of a run on two ranks: nothing hangs, nothing is made up."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.reward_servers import judged_by, reward_server
from support.rl_processes import ROOT, TinyWorld, entry_command, environment, metrics_of, rollouts_of, run, two_ranks
from support.stopped_clock import eventually

pytestmark = pytest.mark.slow

DEADLINE_S = 280.0
IMPATIENT = {
    "use_rm_server": "true",
    "reward_connect_timeout_s": "10",
    "reward_read_timeout_s": "15",
    "reward_deadline_s": "15",
    "reward_attempts": "2",
    "save_steps": "1",
}


@contextmanager
def running(command: list[str], output: Path, steps: int) -> Iterator[subprocess.Popen[bytes]]:
    """The command as a process of its own group, once its run has taken `steps` steps."""
    with (output.parent / "launcher.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment(), cwd=ROOT, start_new_session=True)
        try:
            eventually(lambda: steps_taken(output) >= steps or process.poll() is not None, DEADLINE_S)
            assert process.poll() is None, (output.parent / "launcher.log").read_text()[-3000:]
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(120)


def steps_taken(output: Path) -> int:
    return len(metrics_of(output)) if (output / "metrics.jsonl").exists() else 0


def last_save(output: Path) -> int:
    return max(int(path.parent.name.rpartition("-")[2]) for path in output.glob("checkpoint-*/grrm_state.json"))


def the_one_message(logs: Path) -> str:
    """The sentence that both ranks ended with; each has exactly one, and no traceback."""
    texts = [path.read_text(errors="replace") for path in sorted(logs.glob("workerlog.*"))]
    lines = [[line for line in text.splitlines() if line.startswith("error:")] for text in texts]
    assert len(lines) == 2
    assert [len(rank) for rank in lines] == [1, 1]
    assert lines[0] == lines[1]
    assert not any("Traceback" in text for text in texts)
    return lines[0][0]


def test_killed_reward_server_stops_every_rank_with_one_message_and_the_run_resumes(
    world: TinyWorld, tmp_path: Path
) -> None:
    output, logs = tmp_path / "stopped", tmp_path / "logs"
    with reward_server() as (server, url):
        settings = {**IMPATIENT, "reward_server": url}
        endless = two_ranks(entry_command(world, output, max_steps="5000", **settings), logs)
        with running(endless, output, steps=2) as job:
            server.kill()
            assert job.wait(DEADLINE_S) != 0
    message = the_one_message(logs)
    assert re.search(rf"judging failed on rank \d .*reward server {url} gave no reward for group '\d+-[0-3]'", message)
    assert re.search(r"at attempt [2-9]\d*: the connection was refused \(the deadline of 15 s", message)
    assert all("attempt 1" in (logs / f"workerlog.{rank}").read_text() for rank in (0, 1))

    saved = last_save(output)
    assert saved >= 1
    longer = {**settings, "max_steps": str(saved + 2)}
    before = rollouts_of(output)
    with reward_server("--port", url.rpartition(":")[2]):
        run(two_ranks(entry_command(world, output, **longer), tmp_path / "logs2"), timeout_s=DEADLINE_S)
        run(two_ranks(entry_command(world, tmp_path / "whole", **longer), tmp_path / "logs3"), timeout_s=DEADLINE_S)
    assert [line["step"] for line in metrics_of(output)] == list(range(1, saved + 3))
    assert rollouts_of(output) == rollouts_of(tmp_path / "whole")
    assert rollouts_of(output)[: 4 * saved] == before[: 4 * saved]


def test_judge_that_fails_for_one_rank_only_stops_both_with_the_same_message(world: TinyWorld, tmp_path: Path) -> None:
    with judged_by("faulty", {"fault": "raise", "group_id": "1-3"}) as (_, url):
        command = entry_command(world, tmp_path / "out", reward_server=url, **IMPATIENT)
        done = run(two_ranks(command, tmp_path / "logs"), timeout_s=DEADLINE_S, expect=None)
    assert done.returncode != 0
    message = the_one_message(tmp_path / "logs")
    assert "judging failed on rank 1 (1 of 2 ranks failed)" in message
    assert url in message
    assert "'1-2' and 1 more at attempt 1: it answered HTTP 500" in message
    assert steps_taken(tmp_path / "out") == 1


def test_judge_that_leaves_too_much_unscored_stops_every_rank_with_one_sentence(
    world: TinyWorld, tmp_path: Path
) -> None:
    with judged_by("faulty", {"fault": "unscored", "group_id": "1-0"}) as (_, url):
        settings = {**IMPATIENT, "reward_server": url, "max_unscored_fraction": "0.2"}
        command = entry_command(world, tmp_path / "out", **settings)
        done = run(two_ranks(command, tmp_path / "logs"), timeout_s=DEADLINE_S, expect=None)
    assert done.returncode != 0
    message = the_one_message(tmp_path / "logs")
    assert "left 4 of 16 candidates of a generation batch without a score (judge_unparsable 4)" in message
    assert message.removeprefix("error: ") in (tmp_path / "out/trainer.log").read_text()
    aborted = [group for group in rollouts_of(tmp_path / "out") if group["step"] == 2]
    assert [(group["group_id"], group["use"]) for group in aborted] == [(f"1-{p}", "aborted") for p in range(4)]
    assert [group["candidates"][0]["status"] == "judge_unparsable" for group in aborted] == [True] + [False] * 3
    assert steps_taken(tmp_path / "out") == 1


def test_killed_rank_ends_the_job(world: TinyWorld, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with running(two_ranks(entry_command(world, output, max_steps="5000"), tmp_path / "logs"), output, steps=1) as job:
        ranks = [int(pid) for pid in Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()]
        victim = next(pid for pid in ranks if "run_rl.py" in Path(f"/proc/{pid}/cmdline").read_text())
        os.kill(victim, signal.SIGKILL)
        assert job.wait(DEADLINE_S) != 0
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ranks))
