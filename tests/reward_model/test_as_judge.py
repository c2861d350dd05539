"""From rows with gold to a judge: what run_reward.py leaves is what `grrm rank` scores with, and higher is better."""

from __future__ import annotations

import json

import pytest
from support.command_line import GRRM
from support.rl_processes import CONFIGS, SCRIPTS, one_rank, run
from support.rows import scored_rows

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("yaml", "judge"), [("ranker_tiny_argument.yaml", "ranker"), ("rm_tiny_argument.yaml", "rm")])
def test_a_trained_reward_model_ranks_new_groups(write_rows, settings, tmp_path, yaml, judge):
    data, held = write_rows(scored_rows(200)), write_rows(scored_rows(40, seed=9), "held.jsonl")
    learning = {"max_steps": "100", "save_steps": "100", "learning_rate": "0.003", "lr_end": "1e-4"}
    overrides = settings(data, **learning, backbone_learning_rate="0.001", prompt_type="codeblock-think")
    run(one_rank([str(SCRIPTS / "run_reward.py"), str(CONFIGS / yaml), *overrides]))
    judged, report = tmp_path / "judged.jsonl", tmp_path / "report.json"
    options = ["--model", str(tmp_path / "out"), "--mt-prompt-type", "codeblock-think", "--out", str(judged)]
    done = run([*GRRM, "rank", str(held), "--judge", judge, *options])
    assert "scored 160" in done.stderr
    run([*GRRM, "eval", "ranking", str(judged), "--json", str(report)])
    assert json.loads(report.read_text())["results"]["all"]["accuracy"]["mean"] > 0.7
