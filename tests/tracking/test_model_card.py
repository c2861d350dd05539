"""A model card says what a run has recorded, and that of the weights that are exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.rows import write_jsonl

from grrm.errors import UserError
from grrm.tracking.model_card import model_card

LINES = [
    {"step": 0, "eval_chrf": 30.0},
    {"step": 1, "loss": 0.5},
    {
        "step": 2,
        "eval_chrf": 50.0,
        "eval_alarm/raised": 0.0,
        "eval_loss": 1.5,
        "eval_loss_low": 1.25,
        "eval_loss_high": 1.75,
        "eval_pairs": {},
    },
    {"step": 4, "eval_chrf": 40.0, "eval_loss": None},
    {"step": 5, "loss": 0.4},
]
SETTINGS: dict[str, Any] = {
    "actor_model_name_or_path": "/home/me/runs/mine/sft",
    "train_datasets": "data/rl.jsonl",
    "eval_datasets": "none",
    "rl_algorithm": "grpo",
    "lora": False,
    "lora_rank": 8,
    "metric_for_best_model": "chrf",
    "greater_is_better": True,
}


def write_run(folder: Path, **settings: Any) -> Path:
    (folder / "rollouts").mkdir(parents=True)
    write_jsonl(folder / "metrics.jsonl", LINES)
    (folder / "rollouts/arguments-step00000001.json").write_text(json.dumps(SETTINGS | settings))
    return folder


def rows_of(card: str) -> dict[str, list[str]]:
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in card.splitlines() if line[:2] == "| "]
    return {row[0]: row[1:] for row in rows}


def test_header_has_what_a_hub_reads(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    front = model_card(run, "mine", "apache-2.0", "Qwen/Qwen2.5-7B").split("---\n")[1]
    header = yaml.safe_load(front)
    assert (header["license"], header["base_model"]) == ("apache-2.0", "Qwen/Qwen2.5-7B")
    bare = model_card(run, "mine")
    assert not {"license", "base_model"} & {*yaml.safe_load(bare.split("---\n")[1])}
    assert bare.endswith("## Licence\n\nNot stated.\n")


def test_settings_are_shown_without_folders_of_the_machine_and_what_is_off_is_left_out(tmp_path: Path) -> None:
    card = model_card(write_run(tmp_path / "run"), "mine")
    rows = rows_of(card)
    assert (rows["started from"], rows["training data"], rows["algorithm"]) == (
        ["mine/sft"],
        ["data/rl.jsonl"],
        ["grpo"],
    )
    assert not {"held-out data", "LoRA rank"} & {*rows}
    assert "/home" not in card


@pytest.mark.parametrize(
    ("folder", "settings", "step", "chrf"),
    [
        (".", {}, 4, "40"),
        (".", {"load_best_model_at_end": True}, 2, "50"),
        ("checkpoint-3", {"load_best_model_at_end": True}, 2, "50"),
        (".", {"load_best_model_at_end": True, "save_steps": 4, "metric_for_best_model": "eval_chrf"}, 4, "40"),
        ("checkpoint-1", {}, None, None),
    ],
)
def test_scores_are_those_of_the_weights(
    tmp_path: Path, folder: str, settings: dict[str, Any], step: int | None, chrf: str | None
) -> None:
    run = write_run(tmp_path / "run", **settings)
    (run / folder).mkdir(exist_ok=True)
    card = model_card(run / folder, "mine")
    if step is None:
        assert "The run has recorded no evaluation." in card
    else:
        assert f"after step {step}." in card
        assert rows_of(card)["`eval_chrf`"] == [chrf, "–"]


def test_an_interval_stands_beside_its_score(tmp_path: Path) -> None:
    rows = rows_of(model_card(write_run(tmp_path / "run", load_best_model_at_end=True), "mine"))
    assert rows["`eval_loss`"] == ["1.5", "1.25 to 1.75"]
    assert not {"`eval_loss_low`", "`eval_pairs`", "`eval_alarm/raised`"} & {*rows}


def test_the_verdict_is_told_of_the_run_and_not_of_a_checkpoint(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "checkpoint-3").mkdir()
    change = {"before": 50.0, "after": 52.5, "low": 1.0, "high": 4.0}
    verdict = {"verdict": "helped", "reason": "chrF rose", "first_step": 0, "last_step": 4, "rows": 9}
    (run / "verdict.json").write_text(json.dumps({**verdict, "changes": {"chrf": change}}))
    card = model_card(run, "mine")
    assert "Did training help? helped: chrF rose (steps 0 to 4, 9 held-out rows)." in card
    assert rows_of(card)["`chrf`"] == ["50", "52.5", "+1 to +4"]
    assert "helped" not in model_card(run / "checkpoint-3", "mine")
    (run / "verdict.json").write_text("{}")
    with pytest.raises(UserError, match=r"verdict\.json' holds no verdict"):
        model_card(run, "mine")


@pytest.mark.parametrize(
    ("settings", "judge"),
    [
        ({"use_rule_reward": True, "rule_reward": "grrm"}, "rule grrm"),
        (
            {"reward_sources": [{"judge": "chrf"}, {"judge": "gqm", "model": "a/b", "weight": 2}]},
            "chrf, gqm a/b (weight 2)",
        ),
        ({"use_rule_reward": True, "rule_reward": None}, "rule that each row names"),
        ({"reward_model_name_or_path": "runs/ranker", "reward_judge": "chrf"}, "reward model runs/ranker"),
        ({"use_rm_server": True}, "that of a reward server, whose name the run has not recorded"),
        ({}, "not recorded"),
    ],
)
def test_judge_is_the_one_that_the_settings_name(tmp_path: Path, settings: dict[str, Any], judge: str) -> None:
    assert rows_of(model_card(write_run(tmp_path / "run", **settings), "mine"))["judge"] == [judge]


def test_a_run_that_has_recorded_nothing_says_so(tmp_path: Path) -> None:
    card = model_card(tmp_path, "mine")
    assert "The run has not recorded its settings." in card
    assert "The run has recorded no evaluation." in card


def test_a_judges_card_beside_the_run_becomes_a_table(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    assert "## Judges" not in model_card(run, "mine")
    row = {"language_pair": "en-de", "domain": None, "name": "grrm", "kind": "judge", "coverage": 1.0}
    row |= {"tie_calibrated_accuracy": 0.5678, "soft_pairwise_accuracy": None}
    card = {"format": "grrm judge card 1", "rows": [row, {**row, "domain": "news", "name": "other"}]}
    (run / "card.json").write_text(json.dumps(card))
    (run / "checkpoint-2").mkdir()
    for folder in (run, run / "checkpoint-2"):
        rows = rows_of(model_card(folder, "mine"))
        assert rows["en-de"] == ["grrm", "judge", "0.568", "–", "1.000"]
    (run / "card.json").write_text(json.dumps({**card, "rows": [{**row, "name": 7}]}))
    assert rows_of(model_card(run, "mine"))["en-de"][0] == "7"
    for other in ({}, {**card, "format": "grrm judge card 2"}):
        (run / "card.json").write_text(json.dumps(other))
        with pytest.raises(UserError, match=r"card\.json is no judge's card; write it with `grrm eval judge --out`"):
            model_card(run, "mine")
