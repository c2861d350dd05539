"""Training against a reward model: inside the trainer, and behind the reward server with the same rewards."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.reward_servers import reward_server
from support.rl_processes import TinyWorld, entry_command, one_rank, rollouts_of, run
from support.tiny_policy import write_tiny_reward_model

pytestmark = pytest.mark.slow


def candidates_of(output: Path) -> list[dict]:
    return [candidate for group in rollouts_of(output) for candidate in group["candidates"]]


def test_a_ranker_gives_the_same_rewards_inside_the_trainer_and_behind_a_server(
    world: TinyWorld, tmp_path: Path
) -> None:
    ranker = str(write_tiny_reward_model(tmp_path / "ranker", "ranker"))
    inside = {"reward_model_name_or_path": ranker}
    run(one_rank(entry_command(world, tmp_path / "inside", **inside)))
    with reward_server("--judge", "ranker", "--model", ranker) as (_, url):
        outside = {"use_rm_server": "true", "reward_server": url}
        run(one_rank(entry_command(world, tmp_path / "outside", max_steps="1", save_steps="1", **outside)))
    found = candidates_of(tmp_path / "inside")
    scored = [candidate for candidate in found if candidate["score"] is not None]
    assert scored, "the policy is seeded: some of its samples are translations"
    assert [candidate["reward"] for candidate in scored] == pytest.approx([0.1 * one["score"] for one in scored])
    served = candidates_of(tmp_path / "outside")
    for ours, theirs in zip(found, served, strict=False):
        assert ours["status"] == theirs["status"]
        assert ours["reward"] == pytest.approx(theirs["reward"], abs=1e-5)
