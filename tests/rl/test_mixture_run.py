"""A run whose rewards are a mixture: its parts in the records, and a part that hangs, as configured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.rl_processes import TinyWorld, entry_command, metrics_of, rollouts_of, train_rl

from grrm.rewards.failure_policy import RewardFailure
from grrm.rewards.mixing import mix
from grrm.tracking.rollout_dump import part_of

JUDGES = """
import threading

def hangs(groups):
    threading.Event().wait(120)
    raise AssertionError("the test is over by then")
"""


def train(world: TinyWorld, output: Path, sources: list[dict], **settings: str) -> None:
    values = {"max_steps": "2", "save_steps": "2", "reward_sources": json.dumps(sources), **settings}
    train_rl(entry_command(world, output, **values))


def hung(folder: Path, **keys: object) -> dict:
    (folder / "mine.py").write_text(JUDGES)
    return {"judge": f"{folder}/mine.py:hangs", "name": "slow", "deadline_s": 0.2, **keys}


def test_a_run_goes_on_without_a_judge_that_hangs_and_records_each_part(world: TinyWorld, tmp_path: Path) -> None:
    sources = [{"judge": "chrf", "weight": 2}, {"judge": "consensus", "normalise": "std"}, hung(tmp_path)]
    train(world, tmp_path / "out", sources)
    steps = [line for line in metrics_of(tmp_path / "out") if "loss" in line]
    assert [line["part/slow/frac_left_out"] for line in steps] == [1.0, 1.0]
    assert [line["part/slow/status/judge_timeout"] for line in steps] == [1.0, 1.0]
    assert all(0 <= line["part/chrf/score_mean"] <= 10 for line in steps)
    groups = rollouts_of(tmp_path / "out")
    assert len(groups) == 8
    for group in groups:
        verdict = mix([part_of(part) for part in group["verdict"]["parts"]])
        assert [candidate["score"] for candidate in group["candidates"]] == list(verdict.scores)
        assert [candidate["status"] for candidate in group["candidates"]] == [one.value for one in verdict.statuses]


def test_a_run_tells_how_many_sequences_its_cache_has_room_for(
    world: TinyWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(world, tmp_path / "out", [{"judge": "chrf"}], rollout_max_num_seqs="6", rollout_memory_fraction="0.01")
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "rollouts: " in line]
    assert "up to 6 sequences at a time" in line
    assert "room for 6 of full length" in line
    steps = [line for line in metrics_of(tmp_path / "out") if "loss" in line]
    assert [(step["rollout_running_max"], step["rollout_set_aside"]) for step in steps] == [(6.0, 0.0)] * 2


def test_a_run_stops_where_the_judge_that_hangs_is_required(world: TinyWorld, tmp_path: Path) -> None:
    sources = [{"judge": "chrf"}, hung(tmp_path, on_failure="unscored")]
    with pytest.raises(
        RewardFailure, match=r"16 candidates of a generation batch without a score \(judge_timeout \d+\)"
    ):
        train(world, tmp_path / "out", sources)
