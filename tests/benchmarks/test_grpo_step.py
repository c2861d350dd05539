"""The comparison of trainers: turns, medians, and our own trainer on the workload it describes."""

from __future__ import annotations

import json

import pytest

from grrm.data.bpe import train_bpe


def test_trainers_take_turns_and_the_step_that_warms_up_does_not_count(grpo_step, tmp_path, monkeypatch, capsys):
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny/model.safetensors").touch()
    monkeypatch.setenv("PEERS_HOME", str(tmp_path))
    turns = []

    def run(name, seconds):
        def made(*settings):
            *how, _, _, model, steps = settings
            turns.append((name, model, steps, *how))
            return [{"seconds": 90.0}] + [{"seconds": seconds + step, "rollout": 1.0} for step in range(steps - 1)]

        return made

    monkeypatch.setattr(grpo_step, "is_supported", lambda engine: engine != "ours-bf16")
    monkeypatch.setattr(grpo_step, "run_ours", run("ours", 1.0))
    monkeypatch.setattr(grpo_step, "run_trl", run("trl", 3.0))
    grpo_step.main(["--rounds", "2", "--steps", "3", "--models", "tiny", "--out", str(tmp_path / "result.json")])
    exact = [("ours", "tiny", 4, 1, False), ("ours", "tiny", 4, 2, False)]
    assert turns == [*exact, ("ours", "tiny", 4, 2, True), ("trl", "tiny", 4)] * 2
    rows = {row["engine"]: row for row in json.loads((tmp_path / "result.json").read_text())["rows"]}
    assert rows["ours-fp32"]["seconds_per_step"] == 2.0
    assert rows["ours-fp32"]["steps"] == 6
    assert rows["ours-fp32-2ranks"]["relative_to_trl"] == 0.5
    assert "0.50 of TRL's" in capsys.readouterr().out


@pytest.mark.slow
def test_our_trainer_does_the_work_that_is_described(grpo_step, tmp_path, monkeypatch):
    from support.tiny_policy import write_policy

    train_bpe(grpo_step.prompts(), tmp_path / "tiny", 300)
    write_policy(tmp_path / "tiny", max_position_embeddings=200)
    monkeypatch.setattr(grpo_step, "NEW_TOKENS", 5)
    (tmp_path / "run").mkdir()
    records = grpo_step.run_ours(1, False, tmp_path / "run", tmp_path, "tiny", 2)
    assert len(records) == 2
    assert all(record["seconds"] > record["seconds_rollout"] > 0 < record["seconds_update"] for record in records)
    metrics = [json.loads(line) for line in (tmp_path / "run/out/metrics.jsonl").read_text().splitlines()]
    assert [record["response_length_mean"] for record in metrics if "reward_mean" in record] == [5.0, 5.0]


def test_a_trainer_that_fails_shows_what_it_said(grpo_step, tmp_path):
    with pytest.raises(SystemExit, match="does not exist"):
        grpo_step.run_ours(1, False, tmp_path, tmp_path, "missing", 1)
