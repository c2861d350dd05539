"""A run's rewards and advantages come out of its dump again, bit for bit, and another judge can be asked about it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from weakref import finalize

import numpy as np
import pytest
from support.command_line import invoke
from support.dumped_run import config_of, write_run
from support.rl_processes import TinyWorld, entry_command, rollouts_of, run, two_ranks
from support.rolled import rolled_group
from support.rows import write_jsonl

from grrm.algorithms.advantages import ADVANTAGE_RULES
from grrm.errors import UserError
from grrm.inference.judge_sources import Host, open_mixture
from grrm.judges.gated import GatedJudge
from grrm.judges.sources import read_sources
from grrm.judges.text_metric import TextMetricJudge
from grrm.rewards.failure_policy import FailurePolicy
from grrm.rewards.gates import read_gates
from grrm.rl.dumped_records import group_records
from grrm.rl.experience import advantage_inputs
from grrm.rl.experience_maker import Experience
from grrm.rl.replay import replay
from grrm.rl.reward_stage import RewardStage, reward, shaping_config
from grrm.tracking.report.selection import read_opinions
from grrm.tracking.rollout_dump import ROLLOUTS, RolloutDump, read_rollouts

NORMALISED = {
    "rl_algorithm": "reinforce_plus_plus",
    "norm_adv_by_std": "null",
    "kl_loss_coeff": "0",
    "normalize_reward": "true",
    "normalize_advantage": "true",
}


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"use_kl_in_reward": "true"},
        {"length_neutral_rewards": "true"},
        NORMALISED,
        {**NORMALISED, "rl_algorithm": "ppo", "gae_lambda": "0.7", "clip_range_value": "1"},
    ],
    ids=["grpo", "grpo with KL in the reward", "grpo without length", "normalised with KL in the reward", "ppo"],
)
def test_every_reward_and_advantage_is_replayed_bit_for_bit(tmp_path, settings, file_format):
    folder = write_run(tmp_path, config_of(**settings), file_format=file_format)
    found = list(replay(folder))
    assert [(one.step, one.n_groups, one.n_compared) for one in found] == [(step, 3, 18) for step in (1, 2, 3)]
    assert not any(one.differences for one in found)
    (second,) = replay(folder, only=2)
    assert (second.step, second.differences) == (2, [])


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_the_scores_of_a_mixture_behind_gates_are_mixed_again(tmp_path, file_format):
    sources = [{"judge": "chrf", "normalise": "std", "weight": 0.3}, {"judge": "consensus", "normalise": "rank"}]
    judge = GatedJudge(open_mixture(read_sources(sources), Host(is_own=False)), read_gates({"length": {"slack": 0}}))
    folder = write_run(tmp_path, config_of(), file_format=file_format, judge=judge)
    parts = [group["verdict"]["parts"] for group in read_rollouts(folder / ROLLOUTS) if group["verdict"]]
    assert {part["name"] for of_group in parts for part in of_group} == {"chrf", "consensus"}
    assert [one.differences for one in replay(folder)] == [[], [], []]


def test_rewards_of_a_rule_are_computed_again(tmp_path):
    rule = {"use_rule_reward": True, "rule_reward": "exact", "score_scale_factor": 0.5}
    folder = write_run(tmp_path, config_of().model_copy(update=rule))
    rewards = [one["reward"] for one in next(iter(read_rollouts(folder / ROLLOUTS)))["candidates"]]
    assert rewards == [0.5, 0.0, 0.0]
    assert [(one.n_compared, one.differences) for one in replay(folder)] == [(18, [])] * 3


def test_a_number_that_is_not_the_runs_is_named_and_the_command_fails(tmp_path):
    folder = write_run(tmp_path, config_of())
    path = folder / "rollouts/rollouts-rank000.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    was = records[4]["candidates"][1]["reward"]
    records[4]["candidates"][1]["reward"] = np.nextafter(was, 1.0)
    write_jsonl(path, records)
    done = invoke("replay", folder)
    assert done.return_value == 1
    assert f"step 2, group 2-1, candidate 1: reward {np.nextafter(was, 1.0)!r} in the dump, {was!r} now" in done.output
    assert "53 of 54 rewards and advantages of 3 step(s)" in done.output


def test_another_judge_is_compared_with_the_runs_and_its_opinion_kept(tmp_path):
    folder = write_run(tmp_path, config_of())
    done = invoke("replay", folder, "--step", "3", "--judge", "chrf")
    assert done.return_value == 0, done.output
    assert "chrf on 3 groups, against the judge of the run" in done.output
    assert "pairs in the same relation     +1.000" in done.output
    opinions = read_opinions(folder)["chrf"]
    assert set(opinions) == {(3, "3-0"), (3, "3-1"), (3, "3-2")}
    dumped = {(r["step"], r["group_id"]): r for r in rollouts_of(folder)}
    for place, opinion in opinions.items():
        assert opinion["scores"] == [candidate["score"] for candidate in dumped[place]["candidates"]]


def test_few_groups_of_a_run_are_in_memory_while_it_is_judged_again(tmp_path, monkeypatch):
    class Record(dict):  # as a plain one has no weak references
        pass

    def records(folder):
        for line in lines:
            record = Record(json.loads(line))
            in_memory.add(id(record))
            finalize(record, in_memory.discard, id(record))
            counts.append(len(in_memory))
            yield record

    folder = write_run(tmp_path, config_of())
    template = [record for record in rollouts_of(folder) if record["step"] == 1]
    steps = [
        {**record, "step": step, "group_id": f"{step}-{at}"}
        for step in range(1, 101)
        for at, record in enumerate(template)
    ]
    lines, in_memory, counts = [json.dumps(record) for record in steps], set(), []
    monkeypatch.setattr("grrm.rl.replay.read_rollouts", records)
    monkeypatch.setattr("grrm.cli.commands.replay.GROUPS_AT_A_TIME", 8)
    done = invoke("replay", folder, "--judge", "consensus")
    assert f"consensus on {len(lines)} groups" in done.output
    assert len(read_opinions(folder)["consensus"]) == len(lines)
    assert max(counts) < 40 < len(lines)


def test_only_groups_without_a_verdict_are_judged_again(tmp_path):
    folder = write_run(tmp_path, config_of())
    path = folder / "rollouts/rollouts-rank000.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for number, status in ((1, "judge_timeout"), (5, "judge_unparsable"), (7, "unparsable_candidate")):
        records[number]["candidates"][0] |= {"status": status, "score": None, "reward": None, "advantage": None}
    write_jsonl(path, records)
    failed = {(record["step"], record["group_id"]) for record in (records[1], records[5], records[-1])}
    command = ["replay", str(folder), "--judge", "chrf", "--name", "again"]
    done = invoke(*command, "--only-failed")
    assert "3 of 10 groups have no verdict in the dump" in done.output
    assert "again on their candidates: scored 7" in done.output
    assert {*read_opinions(folder)["again"]} == failed
    assert all(None not in opinion["scores"] for opinion in read_opinions(folder)["again"].values())
    invoke(*command)
    before = read_opinions(folder)["again"]
    assert len(before) == 10
    invoke(*command, "--only-failed")
    assert read_opinions(folder)["again"] == before
    invoke(*command, "--step", "1")
    assert {*read_opinions(folder)["again"]} == {*before}  # of the other steps, too
    done = invoke(*command, "--only-failed", "--step", "1", "--name", "b")
    assert "1 of 3 groups have no verdict" in done.output
    with pytest.raises(UserError, match="--only-failed has no effect without --judge"):
        invoke("replay", folder, "--only-failed")


def test_a_run_without_failures_has_nothing_to_judge_again(tmp_path):
    folder = write_run(tmp_path, config_of())
    command = ["replay", str(folder), "--judge", "chrf", "--only-failed", "--step", "2"]
    done = invoke(*command)
    assert "0 of 3 groups have no verdict in the dump" in done.output
    assert read_opinions(folder) == {}


def test_what_cannot_be_replayed_is_refused_with_the_reason(tmp_path):
    with pytest.raises(UserError, match="has no rollouts"):
        list(replay(tmp_path))
    folder = write_run(tmp_path / "run", config_of(**NORMALISED))
    with pytest.raises(UserError, match="no rollout that step 9 began with: its rollouts are of 1 to 4"):
        list(replay(folder, only=9))
    path = folder / "rollouts/rollouts-rank000.jsonl"
    path.write_text("".join(line + "\n" for line in path.read_text().splitlines() if '"step": 1,' not in line))
    with pytest.raises(UserError, match="running normalisation needs"):
        list(replay(folder))
    (folder / "rollouts/arguments-step00000001.json").unlink()
    with pytest.raises(UserError, match="does not say what settings step 2 was made with"):
        list(replay(folder))
    with pytest.raises(UserError, match="--model has no effect without --judge"):
        invoke("replay", folder, "--model", "m")


def test_a_server_that_is_not_up_is_waited_for_and_then_named_with_the_option(tmp_path, monkeypatch):
    folder = write_run(tmp_path, config_of(), steps=1)
    monkeypatch.setattr("grrm.judges.sources.DEADLINE_S", 1.0)
    with pytest.raises(
        UserError, match=r"server http://127.0.0.1:9 was not ready within 0.95 s .*start it, correct --url"
    ):
        invoke("replay", folder, "--judge", "server", "--url", "http://127.0.0.1:9")


def test_settings_of_a_resumed_run_are_those_of_its_own_steps(tmp_path):
    folder = write_run(tmp_path, config_of(), steps=2)
    halved = config_of(score_scale_factor="0.05")
    resumed = RolloutDump(folder / ROLLOUTS, first_step=3)
    resumed.write_arguments(halved.model_dump(mode="json"))
    stage = RewardStage(TextMetricJudge(), shaping_config(halved), FailurePolicy())
    groups = reward(stage, [rolled_group(0, [3, 5], name="3-0")])
    made = Experience([], [], groups, ADVANTAGE_RULES["grpo"](advantage_inputs(groups)), {}, 1)
    resumed.write(3, group_records(made, 3))
    found = list(replay(folder))
    assert [(one.step, one.differences) for one in found] == [(1, []), (2, []), (3, [])]


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"dynamic_sampling": "true", "max_gen_batches": "8", "dump_format": "jsonl"},
        {**NORMALISED, "enable_overlong_reward_buffer": "true"},
    ],
    ids=["grpo with dynamic sampling", "reinforce++ with KL, normalised, with overlong penalties"],
)
def test_three_steps_of_two_ranks_are_replayed_bit_for_bit_without_paddle(
    world: TinyWorld, tmp_path: Path, settings: dict[str, str]
) -> None:
    buffer = {"overlong_reward_buffer": "6", "overlong_penalty_factor": "0.5"}
    run(two_ranks(entry_command(world, tmp_path / "run", **settings, **buffer), tmp_path / "logs"))
    code = (
        "import sys; from grrm.rl.replay import replay; found = list(replay(sys.argv[1])); "
        "print(len(found), sum(f.n_compared for f in found), sum(len(f.differences) for f in found), "
        "'paddle' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.split() == ["3", str(3 * 4 * 4 * 2), "0", "False"]
