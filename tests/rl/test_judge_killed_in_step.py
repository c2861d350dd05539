"""One of two reward servers is killed in the middle of a step: the run ends where the undisturbed one does."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from support.reward_servers import judged_by
from support.rl_processes import TinyWorld, entry_command, metrics_of, on_ranks, rollouts_of, run

pytestmark = pytest.mark.slow

FATAL = "1-"  # what the ids of the second step's groups begin with; a step comes before it, and one after


def train(world: TinyWorld, folder: Path, n_ranks: int, marker: Path) -> tuple[str, list[int | None]]:
    """What a run of three steps told, and how each of its two servers had ended by then (None: not at all)."""
    judge = ("mortal", {"marker": str(marker), "prefix": FATAL})
    with judged_by(*judge) as (one, url_1), judged_by(*judge) as (two, url_2):
        settings = {
            "use_rm_server": "true",
            "reward_server": json.dumps([url_1, url_2]),
            "reward_groups_per_request": "1",
            "reward_deadline_s": "60",
        }
        done = run(on_ranks(n_ranks, entry_command(world, folder / "out", **settings), folder / "logs"))
        told = "".join(path.read_text() for path in sorted((folder / "logs").glob("workerlog.*")))
        return done.stdout + done.stderr + told, [server.poll() for server in (one, two)]


@pytest.mark.parametrize("n_ranks", [1, 2])
def test_killing_one_of_two_servers_in_a_step_leaves_rewards_advantages_and_weights_as_they_were(
    n_ranks: int, world: TinyWorld, tmp_path: Path
) -> None:
    killed, whole, there = tmp_path / "killed", tmp_path / "whole", tmp_path / "nobody is killed"
    told, ends = train(world, killed, n_ranks, tmp_path / "one is killed")
    assert sorted(ends, key=str) == [-signal.SIGKILL, None]
    assert f"group '{FATAL}" in told  # the client says which group it has to ask for again
    there.touch()
    told, ends = train(world, whole, n_ranks, there)
    assert ends == [None, None]
    assert "attempt" not in told

    groups = rollouts_of(killed / "out")
    assert groups == rollouts_of(whole / "out")
    assert [group["step"] for group in groups] == [1] * 4 + [2] * 4 + [3] * 4
    candidates = [candidate for group in groups for candidate in group["candidates"]]
    assert {one["status"] for one in candidates} <= {"scored", "duplicate", "unparsable_candidate"}
    assert any(one["advantage"] for one in candidates)
    weights, undisturbed = (load_file(folder / "out/model.safetensors") for folder in (killed, whole))
    assert weights.keys() == undisturbed.keys()
    assert all(weights[key].tobytes() == undisturbed[key].tobytes() for key in weights)
    assert [line["loss"] for line in metrics_of(killed / "out")] == [line["loss"] for line in metrics_of(whole / "out")]
