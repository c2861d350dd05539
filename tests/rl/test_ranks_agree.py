"""With the same seeds, the number of ranks changes nothing that matters."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.rl_processes import (
    TinyWorld,
    entry_command,
    held_out_settings,
    metrics_of,
    one_rank,
    rollouts_of,
    run,
    two_ranks,
)

from grrm.training.checkpoints import read_marker

pytestmark = pytest.mark.slow
VARIANTS = {
    "grpo balanced in mini-batches": {
        "balance_batch": "true",
        "global_mini_batch_size": "2",
        "max_steps": "4",
        "save_steps": "4",
        "per_device_train_batch_size": "4",
    },
    "reinforce++ sharded": {
        "yaml": "reinforce_plus_plus_grrm_tiny_argument.yaml",
        "sharding": "stage1",
        "kl_coeff": "0",
    },
}


@pytest.mark.parametrize("name", VARIANTS)
def test_one_and_two_ranks_give_the_same_groups_rewards_advantages_and_loss(
    name: str, world: TinyWorld, tmp_path: Path
) -> None:
    settings = dict(VARIANTS[name])
    alone = {key: value for key, value in settings.items() if key != "sharding"}
    run(one_rank(entry_command(world, tmp_path / "one", **alone)))
    run(two_ranks(entry_command(world, tmp_path / "two", **settings), tmp_path / "logs"))

    assert rollouts_of(tmp_path / "one") == rollouts_of(tmp_path / "two")
    one, two = metrics_of(tmp_path / "one"), metrics_of(tmp_path / "two")
    assert len(one) == int(settings.get("max_steps", "3"))
    for left, right in zip(one, two, strict=True):
        assert left["loss"] == pytest.approx(right["loss"], abs=1e-5)
        assert left["reward_mean"] == right["reward_mean"]
        assert left["entropy"] == pytest.approx(right["entropy"], abs=1e-4)
    assert any(group["candidates"][0]["advantage"] for group in rollouts_of(tmp_path / "one"))


@pytest.mark.parametrize("layout", [{}, {"tensor_parallel_degree": "2"}], ids=["data", "tensor"])
def test_one_and_two_ranks_find_the_same_in_held_out_rows(
    world: TinyWorld, tmp_path: Path, layout: dict[str, str]
) -> None:
    settings = {**held_out_settings(world, tmp_path, n_rows=11), "max_steps": "2", "save_steps": "2"}
    run(one_rank(entry_command(world, tmp_path / "one", **settings)))
    settings |= layout
    run(two_ranks(entry_command(world, tmp_path / "two", **settings), tmp_path / "logs"))
    one, two = ([line for line in metrics_of(tmp_path / name) if "eval_reward" in line] for name in ("one", "two"))
    assert one == two
    assert [line["step"] for line in one] == [0, 1, 2]
    assert "eval_alarm/chrf_greedy_change" in one[1]
    markers = [read_marker(tmp_path / name / "checkpoint-2") for name in ("one", "two")]
    assert markers[0]["alarm"] == markers[1]["alarm"]
    assert len(markers[0]["alarm"]["first"]["greedy"]) == 11
