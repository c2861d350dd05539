"""The comparison of trainers: our own trainer on the workload it describes."""

from __future__ import annotations

import json

import pytest

from grrm.data.bpe import train_bpe


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
