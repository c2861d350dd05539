"""RL runs whose rollouts a real vLLM samples: its log-probabilities equal the trainer's at every step."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from engines.engine_servers import MODEL, EngineServer, Start
from support.rl_processes import TinyWorld, entry_command, environment, metrics_of, one_rank, run

GAP = 1e-5  # nats per token, at most; float32 rounds differently in two engines
STEPS = 5


def command(world: TinyWorld, output: Path, server: EngineServer, **settings: str) -> list[str]:
    """A run of a few steps with large updates, so that stale weights show at once."""
    return entry_command(
        world,
        output,
        **{
            "rollout_backend": "vllm",
            "rollout_servers": server.url,
            "temperature": "1.0",
            "warmup_steps": "0",
            "learning_rate": "0.002",
            "max_steps": str(STEPS),
            "save_steps": "1",
            **settings,
        },
    )


def check(output: Path, steps: int = STEPS) -> None:
    """Every step was sampled with its own weights."""
    lines = metrics_of(output)
    assert [line["step"] for line in lines] == list(range(1, steps + 1))
    assert max(line["logprob_gap_max"] for line in lines) <= GAP


def is_paused(server: EngineServer) -> bool:
    return bool(json.loads(server.ask("/is_paused"))["is_paused"])


def test_log_probabilities_agree_at_every_step(policy_world: TinyWorld, vllm: EngineServer, tmp_path: Path) -> None:
    run(one_rank(command(policy_world, tmp_path / "out", vllm, max_steps="20")))
    check(tmp_path / "out", steps=20)


def test_a_server_that_was_paused_is_used(policy_world: TinyWorld, vllm: EngineServer, tmp_path: Path) -> None:
    vllm.ask("/pause?mode=abort", b"")
    assert is_paused(vllm)
    run(one_rank(command(policy_world, tmp_path / "out", vllm)))
    check(tmp_path / "out")


def test_a_server_that_sleeps_while_the_policy_trains_has_the_weights_of_each_step(
    policy_world: TinyWorld, vllm: EngineServer, tmp_path: Path
) -> None:
    """On a CPU vLLM keeps its memory, but takes the same calls; the second run finds it asleep."""
    for name in ("first", "second"):
        run(one_rank(command(policy_world, tmp_path / name, vllm, rollout_servers_sleep="true")))
        check(tmp_path / name)
        assert json.loads(vllm.ask("/is_sleeping"))["is_sleeping"]
    vllm.ask("/wake_up", b"")  # for other tests


def test_an_output_layer_that_the_server_keeps_is_noticed(
    policy_world: TinyWorld, vllm: EngineServer, tmp_path: Path
) -> None:
    words = command(policy_world, tmp_path / "out", vllm)
    done = run(one_rank([str(Path(__file__).with_name("without_head.py")), *words]), expect=2)
    assert f"rollout server {vllm.url} differs from the trainer after the update to step" in done.stderr
    assert "an output layer tied to the embedding" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_of_another_name_is_refused(policy_world: TinyWorld, vllm: EngineServer, tmp_path: Path) -> None:
    done = run(one_rank(command(policy_world, tmp_path / "out", vllm, rollout_model_name="other")), expect=2)
    assert "The model `other` does not exist" in done.stderr
    assert "Traceback" not in done.stderr
    assert not is_paused(vllm)


def test_a_server_of_another_shape_is_refused_and_not_left_paused(
    world: TinyWorld, exported: Path, start: Start, tmp_path: Path
) -> None:
    server = start("vllm", exported)
    done = run(one_rank(command(world, tmp_path / "out", server)), expect=2)
    assert f"generation server {server.url} did not answer to take over weights" in done.stderr
    assert "Traceback" not in done.stderr
    assert not is_paused(server)


def test_a_server_that_others_keep_busy_is_waited_for(
    policy_world: TinyWorld, vllm: EngineServer, tmp_path: Path
) -> None:
    load = f"""
import json, threading, urllib.request
def ask():
    while True:
        body = json.dumps(dict(model="{MODEL}", prompt=[5] * 8, max_tokens=200, ignore_eos=True)).encode()
        request = urllib.request.Request("{vllm.url}/v1/completions", body, {{"Content-Type": "application/json"}})
        urllib.request.urlopen(request).read()
for _ in range(32):
    threading.Thread(target=ask).start()
"""
    others = subprocess.Popen([sys.executable, "-c", load])
    try:
        run(one_rank(command(policy_world, tmp_path / "out", vllm)))
    finally:
        others.kill()
        others.wait()
    check(tmp_path / "out")


def test_a_run_whose_server_is_killed_stops_with_a_sentence_and_resumes(
    policy_world: TinyWorld, exported: Path, start: Start, tmp_path: Path
) -> None:
    server, output = start("vllm", exported), tmp_path / "out"
    words = command(policy_world, output, server, rollout_deadline_s="20", max_steps="40")
    trainer = subprocess.Popen(one_rank(words), stderr=subprocess.PIPE, text=True, env=environment())
    await_step(output, 3, trainer)
    server.kill()
    _, said = trainer.communicate(timeout=300)
    assert trainer.returncode == 2
    assert f"generation server {server.url} did not answer" in said
    assert "Traceback" not in said
    server.start()
    run(one_rank(words))
    check(output, steps=40)


def test_a_server_that_restarts_during_a_run_never_samples_with_the_weights_of_its_start(
    policy_world: TinyWorld, exported: Path, start: Start, tmp_path: Path
) -> None:
    server, output = start("vllm", exported), tmp_path / "out"
    words = command(policy_world, output, server, max_steps="40")
    trainer = subprocess.Popen(one_rank(words), stderr=subprocess.PIPE, text=True, env=environment())
    await_step(output, 3, trainer)
    server.kill()
    server.start()
    _, said = trainer.communicate(timeout=600)
    if trainer.returncode:  # it restarted during a rollout, not during an update
        assert "has restarted since its last weight update" in said
        run(one_rank(words))
    steps = metrics_of(output)
    assert [line["step"] for line in steps][-1] == 40
    assert max(line["logprob_gap_mean"] for line in steps) <= 0.01


def await_step(output: Path, step: int, trainer: subprocess.Popen[str]) -> None:
    gives_up = time.monotonic() + 300
    while not (output / "metrics.jsonl").exists() or len(metrics_of(output)) < step:
        if trainer.poll() is not None or time.monotonic() > gives_up:
            pytest.fail(f"the run ended before step {step}: {trainer.communicate()[1]}")
        time.sleep(0.1)
