"""PaddleNLP's own RL data, whose labels are plain text, train a policy against a server of PaddleNLP's protocol."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.reward_servers import reward_server
from support.rl_processes import CONFIGS, TinyWorld, entry_command, metrics_of, one_rank, rollouts_of, run

PUZZLE = "<|im_start|>user\nMichael said that Zoey lies.<|im_end|>\n<|im_start|>assistant\n<think>"


@pytest.mark.slow
def test_labels_of_any_kind_reach_the_server_as_they_are(world: TinyWorld, tmp_path: Path) -> None:
    data = tmp_path / "kk.jsonl"
    rows = [{"src": [PUZZLE], "tgt": [f"(1) Michael is a knight\n(2) puzzle {n}"]} for n in range(8)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    rule = ("--judge", "answer", "--judge-option", "rule=knights_and_knaves", "--default-reward", "-1")
    with reward_server("--port", "0", *rule) as (_, url):
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
