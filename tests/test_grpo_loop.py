"""The loop that newcomers read first runs on any checkpoint, and its pieces learn what a judge rewards."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import numpy as np
import paddle
import pytest
from support.command_line import ends_with_a_sentence
from support.rl_processes import SCRIPTS, TinyWorld, run

from grrm import grpo_loop
from grrm.data.dataset import read_prompt_items
from grrm.gqm.groups import Group, Status, Verdict
from grrm.models.policy import load_policy
from grrm.models.tokenizer import encoder, load_tokenizer
from grrm.rewards.failure_policy import FailurePolicy
from grrm.rewards.shaping import ShapingConfig
from grrm.rl.experience import mean_reward
from grrm.rl.reward_stage import RewardStage, reward
from grrm.rl.rollout import PromptBatch

SCRIPT = SCRIPTS / "grpo_loop.py"


def test_it_is_short_enough_to_be_read_first():
    assert len(SCRIPT.read_text(encoding="utf-8").splitlines()) <= 150


def test_it_runs_on_a_checkpoint_and_says_how_each_step_went(world: TinyWorld):
    done = run([sys.executable, str(SCRIPT), str(world.policy), str(world.rl_data), "--steps", "2", "--samples", "4"])
    found = re.findall(r"^step (\d)/2  reward \d\.\d{4}  loss [+-]\d+\.\d{5}$", done.stdout, re.M)
    assert found == ["1", "2"]
    assert done.stderr == ""


@pytest.mark.parametrize("place", ["checkpoint", "data"])
def test_a_wrong_path_is_one_sentence(
    world: TinyWorld, place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    paths = {"checkpoint": str(world.policy), "data": str(world.rl_data), place: "/nowhere"}
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *paths.values()])
    assert "/nowhere" in ends_with_a_sentence(grpo_loop.main, capsys)


class PrefersBlanks:
    """Scores a response with ten times the share of its characters that are blanks."""

    name = "prefers blanks"

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        verdicts = []
        for group in groups:
            texts = [candidate.response for candidate in group.candidates]
            scores = tuple(10.0 * text.count(" ") / max(len(text), 1) for text in texts)
            verdicts.append(Verdict((Status.SCORED,) * len(scores), scores))
        return verdicts


def test_its_pieces_teach_a_policy_what_the_judge_prefers(world: TinyWorld, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(grpo_loop, "MAX_TOKENS", 24)
    policy, tokenizer = load_policy(world.policy), load_tokenizer(world.policy)
    worker = grpo_loop.build_worker(policy, tokenizer, samples=16)
    items = read_prompt_items(world.rl_data, encoder(tokenizer), 512)[:2]
    stage = RewardStage(PrefersBlanks(), ShapingConfig(), FailurePolicy())
    optimizer = paddle.optimizer.AdamW(0.01, parameters=policy.parameters())
    rewards = []
    for step in range(12):
        groups = reward(stage, worker.roll_out(PromptBatch(items, range(len(items)), generation=step)))
        rewards.append(mean_reward(groups)[0])
        grpo_loop.train_on(policy, tokenizer.pad_token_id, grpo_loop.rows_of(groups))
        optimizer.step()
        optimizer.clear_grad()
    assert np.mean(rewards[-3:]) > 1.5 * np.mean(rewards[:3])
