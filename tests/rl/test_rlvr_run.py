"""A judge is trained in both stages, on rows of the real converters; the second as the process that users start."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from support.command_line import ends_with_a_sentence
from support.rl_processes import (
    CONFIGS,
    TinyWorld,
    entry_command,
    metrics_of,
    one_rank,
    rollouts_of,
    run,
    train_here,
    train_rl,
)
from support.rows import annotated_groups

from grrm.config import SFTConfig, load_config
from grrm.rewards.ranking_accuracy import ranking_score_reward
from grrm.sft import run as sft_run

pytestmark = pytest.mark.slow

RULE = {"rule_reward": "ranking_score", "global_batch_size": "4", "rollout_n": "8", "frozen_layers": "1"}
LENGTHS = {"max_prompt_len": "192", "max_dec_len": "48", "max_length": "240"}


@pytest.fixture(scope="module")
def judge(world: TinyWorld, save_policy, tmp_path_factory: pytest.TempPathFactory) -> TinyWorld:
    """A judge whose cold start taught it the form of one verdict, and reordered groups, where that is often wrong."""
    from grrm.data.bpe import train_bpe
    from grrm.data.converters.gqm import convert_rl_gqm, convert_sft_gqm

    folder = tmp_path_factory.mktemp("judge")
    groups = annotated_groups(world.folder / "train.parquet", folder / "groups.parquet", 48)
    sft = convert_sft_gqm(groups, folder / "sft_gqm.jsonl").path
    rows = [json.loads(line) for line in sft.read_text(encoding="utf-8").splitlines()]
    train_bpe([text for row in rows for text in (row["src"], row["tgt"])], folder / "start", vocab_size=512)
    save_policy(folder / "start")
    settings = {
        "model_name_or_path": str(folder / "start"),
        "tokenizer_name_or_path": str(folder / "start"),
        "train_datasets": str(sft),
        "output_dir": str(folder / "policy"),
        "max_length": "256",
        "max_steps": "180",
        "per_device_train_batch_size": "8",
        "learning_rate": "0.01",
        "report_to": "none",
    }
    overrides = [text for key, value in settings.items() for text in (f"--{key}", value)]
    train_here(sft_run.train, load_config(SFTConfig, CONFIGS / "sft_gqm_tiny_argument.yaml", overrides))
    return TinyWorld(folder, folder / "policy", convert_rl_gqm(groups, folder / "rl_gqm.jsonl", shuffle_augment=2).path)


def second_stage(judge: TinyWorld, output: Path, **settings: str) -> list[str]:
    return entry_command(
        judge,
        output,
        "rlvr_grrm_tiny_argument.yaml",
        **{**LENGTHS, **RULE, "max_steps": "2", "save_steps": "2", **settings},
    )


def test_verdicts_are_rewarded_by_the_rule_and_the_judge_learns_from_it(judge: TinyWorld, tmp_path: Path) -> None:
    settings = {"learning_rate": "0.001", "warmup_steps": "0", "min_learning_rate": "0.0002"}
    told = run(one_rank(second_stage(judge, tmp_path, **settings))).stderr
    assert f"grrm report {tmp_path}" in told
    assert "grrm translate" not in told
    groups = rollouts_of(tmp_path)
    assert len(groups) == 2 * 4
    rewards = []
    for group in groups:
        truth = json.loads(group["reference"])
        assert sorted(truth.values()) == [1, 4, 9]
        assert "Translation C:" in group["source"]
        for candidate in group["candidates"]:
            expected = ranking_score_reward(candidate["response"], truth)
            assert candidate["status"] == ("scored" if expected.valid_answer else "unparsable_candidate")
            assert candidate["score"] == (pytest.approx(expected.score) if expected.valid_answer else None)
            assert candidate["reward"] == pytest.approx(expected.score)
            rewards.append(candidate["reward"])
    assert len(set(rewards)) > 2  # valid verdicts of different worth, or nothing here was tried
    metrics = metrics_of(tmp_path)
    assert [line["learning_rate"] for line in metrics] == pytest.approx([0.0006, 0.0002])
    for line in metrics:
        assert 0 < line["ranking_reward_mean"] <= 1
        assert line["score_mean"] >= line["ranking_reward_mean"]
        assert line["status/scored"] + line["frac_unscored"] == pytest.approx(1)
    before, after = (load_file(folder / "model.safetensors") for folder in (judge.policy, tmp_path))
    changed = {name for name in after if (before[name] != after[name]).any()}
    # The output is the embeddings here, and frozen with them.
    frozen = {name for name in after if "embed_tokens" in name or "lm_head" in name or ".layers.0." in name}
    assert len(frozen) > 2
    assert changed == set(after) - frozen


def test_penalty_of_overlong_verdicts_reaches_the_rewards(judge: TinyWorld, tmp_path: Path) -> None:
    ramp = {
        "enable_overlong_reward_buffer": "true",
        "overlong_reward_buffer": "2",
        "overlong_max_resp_len": "4",
        "overlong_penalty_factor": "0.5",
        "overlong_penalty_capped": "false",
    }
    command = second_stage(judge, tmp_path, max_steps="1", save_steps="1", **ramp)
    train_rl(command)
    candidates = [(group["reference"], one) for group in rollouts_of(tmp_path) for one in group["candidates"]]
    for truth, candidate in candidates:
        earned = ranking_score_reward(candidate["response"], truth).score
        penalty = 0.5 * max(0, candidate["n_tokens"] - 2) / 2
        assert candidate["reward"] == pytest.approx(earned - penalty)
    assert max(candidate["n_tokens"] for _, candidate in candidates) > 4


def test_row_of_another_stage_is_told_with_its_line(
    judge: TinyWorld,
    world: TinyWorld,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = second_stage(replace(judge, rl_data=world.rl_data), tmp_path)
    said = ends_with_a_sentence(lambda: train_rl(command), capsys)
    assert "rl.jsonl line 1: The ground truth" in said
