"""Real runs with the losses, the masks of the correction and the KL in a group's rewards that no other run has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.reward_servers import reward_server
from support.rl_processes import CONFIGS, TinyWorld, entry_command, metrics_of, one_rank, rollouts_of, run
from support.rows import write_jsonl

from grrm.rl.replay import replay

TWO_UPDATES_A_ROLLOUT = {
    "global_mini_batch_size": "2",
    "per_device_train_batch_size": "4",
    "max_steps": "4",
    "save_steps": "4",
    "warmup_steps": "0",
}
MASKS = {"rollout_ahead": "1", "rollout_is_mode": "mask", "rollout_is_cap": "1.001", "rollout_is_floor": "0.999"}


def lines_of_a_run(world: TinyWorld, output: Path, **settings: str) -> list[dict]:
    run(one_rank(entry_command(world, output, **TWO_UPDATES_A_ROLLOUT, **settings)))
    lines = metrics_of(output)
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert np.isfinite([line["loss"] for line in lines]).all()
    assert not any(one.differences for one in replay(output))
    return lines


@pytest.mark.slow
def test_advantages_within_a_group_count_the_kl_of_each_response(world: TinyWorld, tmp_path: Path) -> None:
    lines_of_a_run(world, tmp_path, policy_loss="sapo", use_kl_in_reward="true", kl_coeff="0.5", kl_loss_coeff="0")
    groups = [group for group in rollouts_of(tmp_path) if group["step"] == 3]
    assert len(groups) == 4
    for group in groups:
        scored = [one for one in group["candidates"] if one["reward"] is not None]
        assert any(one["kl"] for one in scored)
        rewards = np.array([one["reward"] - 0.5 * sum(one["kl"]) for one in scored])
        np.testing.assert_allclose([one["advantage"] for one in scored], rewards - rewards.mean(), atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "unit"), [("gmpo", "sequence"), ("cispo", "token")])
def test_samples_of_an_older_policy_are_masked(world: TinyWorld, tmp_path: Path, loss: str, unit: str) -> None:
    last = lines_of_a_run(world, tmp_path, policy_loss=loss, rollout_is=unit, **MASKS)[-1]
    outside = last["rollout_is_capped"] + last["rollout_is_floored"]
    assert 0 < outside <= 1
    assert last["rollout_is_mean"] == pytest.approx(1 - outside, abs=1e-3)
    assert last["rollout_is_max"] > 1.001


# --- paddleNLP's own RL data, whose labels are plain text, train a policy against a server of PaddleNLP's protocol


PUZZLE = "<|im_start|>user\nMichael said that Zoey lies.<|im_end|>\n<|im_start|>assistant\n<think>"


@pytest.mark.slow
def test_labels_of_any_kind_reach_the_server_as_they_are(world: TinyWorld, tmp_path: Path) -> None:
    data = tmp_path / "kk.jsonl"
    rows = [{"src": [PUZZLE], "tgt": [f"(1) Michael is a knight\n(2) puzzle {n}"]} for n in range(8)]
    write_jsonl(data, rows)
    rule = ("--judge", "answer", "--judge-option", "rule=knights_and_knaves", "--default-reward", "-1")
    with reward_server(*rule) as (_, url):
        settings = {"use_rm_server": "true", "reward_server": url, "reward_protocol": "paddlenlp"}
        settings |= {"train_datasets": str(data), "eval_datasets": str(data), "evaluation_strategy": "steps"}
        settings |= {"eval_steps": "2", "max_steps": "2", "save_steps": "2"}
        run(one_rank(entry_command(world, tmp_path / "out", unshaped(tmp_path), **settings)))
    assert {group["reference"] for group in rollouts_of(tmp_path / "out")} <= {row["tgt"][0] for row in rows}
    last = metrics_of(tmp_path / "out")[-1]
    assert -1 <= last["eval_reward"] <= 1
    assert "eval_chrf" not in last


def unshaped(folder: Path) -> str:
    """An argument file without the keys of rewards, which such a server has shaped already."""
    lines = (CONFIGS / "grpo_grrm_tiny_argument.yaml").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("score_scale_factor", "default_reward"))]
    (folder / "unshaped.yaml").write_text("\n".join(kept) + "\n")
    return str(folder / "unshaped.yaml")
