"""Rollouts that teach nothing leave the policy as it was, or stop the run with a sentence."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from support.command_line import ends_with_a_sentence
from support.rl_processes import CONFIGS, TinyWorld, entry_command, rollouts_of, train_here

from grrm.config import RLConfig, load_config
from grrm.gqm.groups import Status
from grrm.rewards.failure_policy import FirstScores, RewardFailure
from grrm.rl import run as rl_run
from grrm.tracking.metrics_log import read_metrics

train = partial(train_here, rl_run.train)


def unparsable(world: TinyWorld, tmp_path: Path, **settings: str):
    """Arguments of a run in which no response can be read, and such rows are masked."""
    text = (CONFIGS / "grpo_grrm_tiny_argument.yaml").read_text()
    path = tmp_path / "arguments.yaml"
    path.write_text(text + "\nfailure_policy: {unparsable_candidate: mask}\n")
    command = entry_command(
        world, tmp_path / "out", yaml=str(path), **{"max_steps": "2", "save_steps": "2", **settings}
    )
    return load_config(RLConfig, command[1], command[2:])


@pytest.mark.parametrize("rule", ["grpo", "reinforce_plus_plus"])
def test_rollout_without_a_single_reward_changes_no_weight(
    world: TinyWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    monkeypatch.setattr(rl_run, "extract_translation", lambda response, kind: None)
    train(unparsable(world, tmp_path, rl_algorithm=rule, norm_adv_by_std="null"))
    metrics = read_metrics(tmp_path / "out")
    assert [(line["step"], line["loss"], line["frac_unscored"], line["reward_mean"]) for line in metrics] == [
        (1, 0.0, 1.0, None),
        (2, 0.0, 1.0, None),
    ]
    assert not {"entropy", "kl", "ratio_mean", "pg_clipfrac"} & metrics[0].keys()  # means over no token
    before, after = (load_file(folder / "model.safetensors") for folder in (world.policy, tmp_path / "out"))
    assert all(np.array_equal(before[name], after[name]) for name in after)
    assert {c["reward"] for group in rollouts_of(tmp_path / "out") for c in group["candidates"]} == {None}


def test_dynamic_sampling_that_finds_no_signal_stops_with_a_sentence(
    world: TinyWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rl_run, "extract_translation", lambda response, kind: None)
    args = unparsable(world, tmp_path, dynamic_sampling="true", max_gen_batches="2")
    said = ends_with_a_sentence(lambda: train(args), capsys, status=3)
    assert said.startswith(
        "only 0 of 4 groups carried a signal after 2 generation batches (the others: 8 too_few): "
        "32 samples of the too_few groups are unparsable_candidate: no translation"
    )


def test_three_rollouts_without_a_readable_response_stop_the_run_with_the_reason(
    world: TinyWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rl_run, "extract_translation", lambda response, kind: None)
    args = unparsable(world, tmp_path, max_steps="4")
    said = ends_with_a_sentence(lambda: train(args), capsys, status=3)
    assert said.startswith("no response of the first 3 rollouts has a score (the last: 16 unparsable_candidate)")
    assert "which extractor_type oneline or the judge does not accept" in said
    assert len(rollouts_of(tmp_path / "out")) == 3 * 4
    train(unparsable(world, tmp_path, max_steps="4", max_rollouts_unscored="null", overwrite_output_dir="true"))
    assert read_metrics(tmp_path / "out")[-1]["step"] == 4


def test_one_score_ends_the_watch() -> None:
    unread = {Status.JUDGE_UNPARSABLE: 2}
    watch = FirstScores(limit=2)
    for statuses in (unread, {**unread, Status.SCORED: 1}, unread, unread):
        watch.watch(statuses, "r0")
    with pytest.raises(RewardFailure, match=r"first 1 rollouts has a score \(the last: 2 judge_unparsable\).*'r0'"):
        FirstScores(limit=1).watch(unread, "r0")


def test_the_responses_are_blamed_only_where_none_could_be_read() -> None:
    for status, said in (
        (Status.UNPARSABLE_CANDIDATE, "'r0', which the judge does not accept: correct it"),
        (Status.WRONG_LANGUAGE, "'r0': they fail the gate language; look at the responses, or set"),
        (Status.JUDGE_TIMEOUT, "'r0': the judge is too slow; raise judge_deadline_s of its server, or set"),
    ):
        with pytest.raises(RewardFailure, match=said):
            FirstScores(limit=1).watch({status: 3, Status.TOO_LONG: 1}, "r0")
