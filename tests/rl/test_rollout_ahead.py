"""Rollouts that are sampled a step ahead: from which weights, beside what, and what a checkpoint keeps of them."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.rl_processes import TinyWorld, entry_command, killed_at, metrics_of, one_rank, rollouts_of, run, two_ranks
from support.rolled import TASK, IdleEngine, Watched, rolled_group, scored_group

from grrm.config import RLConfig
from grrm.data.dataset import PromptItem
from grrm.engine.api import Completion
from grrm.errors import UserError
from grrm.parallel.data_ranks import CollectiveFailure, DataRanks
from grrm.rewards.client import RewardServerError
from grrm.rewards.failure_policy import RewardFailure
from grrm.rl.batch_sampler import BatchSampler, StartedBatch
from grrm.rl.experience_maker import Experience, ExperienceMaker
from grrm.rl.records import ModelOutputs
from grrm.rl.rollout_ahead import FILE, SavedSamples, are_of, read_samples, write_samples
from grrm.rl.trainer import GroupPolicyTrainer, StepIndexLoader
from grrm.training.checkpoints import last_complete_checkpoint

PATIENCE_S = 120.0
CONFIG = RLConfig(
    rollout_n=2,
    rollout_seed=1,
    dataloader_shuffle=False,
    dataloader_drop_last=True,
    rollout_ahead=1,
    use_rm_server=True,
)


def roll_out(batch, *rest):
    return [rolled_group(position, [2, 2]) for position in batch.positions]


class ServingEngine(IdleEngine):
    """Generates apart; notes the steps whose weights it takes over."""

    is_remote = True

    def __init__(self) -> None:
        self.updates: list[int] = []

    def update_weights(self, version: int = 0) -> None:
        self.updates.append(version)


def maker(reward, worker=None, **settings) -> ExperienceMaker:
    prompts = [PromptItem(0, [5, 6], "", TASK), PromptItem(1, [5], "", TASK)]
    worker = worker or SimpleNamespace(roll_out=roll_out, engine=IdleEngine())
    plan, config = SimpleNamespace(prompts_generated_per_pass=2), CONFIG.model_copy(update=settings)
    sampler = BatchSampler(prompts, worker, Watched(reward), plan, config, DataRanks(0, 1))
    return ExperienceMaker(sampler, lambda groups: [ModelOutputs()] * len(groups))


def test_a_server_judges_while_the_trainer_goes_on():
    trained, judged = threading.Event(), threading.Event()

    def reward(groups):
        assert trained.wait(PATIENCE_S)
        judged.set()

    made = maker(reward)
    made.start_next(6)
    assert not judged.is_set()
    trained.set()
    made.settle()
    assert judged.is_set()
    assert [scored.rolled.position for scored in made.generate(7)] == [0, 1]
    assert made.generation == 1


def test_a_judge_in_this_process_has_ended_before_the_trainer_goes_on():
    judged = []
    maker(judged.append, use_rm_server=False).start_next(6)
    assert len(judged) == 1


def test_a_judge_that_was_waited_for_beforehand_has_not_worked_in_parallel():
    made = maker(lambda groups: None, use_rm_server=False)
    made.start_next(6)
    slow = SimpleNamespace(settle=lambda: time.sleep(0.05))
    batch = StartedBatch(made._ahead.sampling, slow, is_judged=True)
    batch.settle()
    assert batch.waited_s >= 0.05
    made._ahead.waited_s = 100.0
    made.generate(7)
    assert made._seconds["judge_waiting"] >= 100.0
    assert made._seconds["judge_overlapped"] == 0.0


@pytest.mark.parametrize("on_server", [True, False])
def test_servers_draw_while_the_trainer_goes_on_and_a_judge_in_this_process_waits(on_server):
    trained, judged, engine = threading.Event(), [], ServingEngine()

    def sample(batch, *rest):
        assert trained.wait(PATIENCE_S)
        return roll_out(batch)

    made = maker(judged.append, SimpleNamespace(sample=sample, engine=engine), use_rm_server=on_server)
    made.start_next(6)
    assert engine.updates == [6]
    trained.set()
    made.settle()
    assert len(judged) == on_server
    assert [scored.rolled.position for scored in made.generate(7)] == [0, 1]
    assert len(judged) == 1


def test_servers_that_fail_meanwhile_are_told_of_when_their_samples_are_needed():
    def sample(*arguments):
        raise UserError("no server answers")

    made = maker(lambda groups: None, SimpleNamespace(sample=sample, engine=ServingEngine()))
    made.start_next(6)
    made.settle()
    assert made.sampled_ahead() == []  # the checkpoint of the update in between is whole without them
    with pytest.raises(CollectiveFailure, match="sampling failed on rank 0: no server answers"):
        made.generate(7)


def test_a_judge_that_fails_meanwhile_is_told_of_when_its_rewards_are_needed():
    def reward(groups):
        raise RewardServerError("http://judge", ["g0"], 3, "connection refused")

    made = maker(reward)
    made.start_next(6)
    made.settle()
    with pytest.raises(RewardFailure, match=r"judging failed on rank 0.*http://judge"):
        made.generate(7)


SAVED = {
    0: SavedSamples([5, 6], [Completion([7], [-0.5], "stop"), Completion([], [], "length")]),
    1: SavedSamples([5], [Completion([8, 9], [-1.5, -2.0], "length"), Completion([1], [-3.0], "stop")]),
}
GROUPS = [
    replace(
        rolled_group(position, []),
        item=PromptItem(position, saved.prompt_ids, "", TASK),
        token_ids=[sample.token_ids for sample in saved.completions],
        engine_logprobs=[np.asarray(sample.logprobs, np.float32) for sample in saved.completions],
        finish_reasons=[sample.finish_reason for sample in saved.completions],
    )
    for position, saved in SAVED.items()
]


def test_samples_come_back_from_a_checkpoint_as_they_were(tmp_path):
    assert read_samples(tmp_path) == {}
    write_samples(tmp_path, GROUPS)
    assert read_samples(tmp_path) == SAVED
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_resumed_run_uses_the_samples_of_its_checkpoint_once():
    def group(batch, index, completions):
        position = batch.positions[index]
        lengths = [len(one.token_ids) for one in completions]
        return rolled_group(position, lengths, name=f"{batch.generation}-{position}")

    made = maker(lambda groups: None, SimpleNamespace(roll_out=roll_out, group=group, engine=IdleEngine()))
    made.restore({"generation": 4, "moments": None}, dict(SAVED))
    groups = [scored.rolled for scored in made.generate(7)]
    assert [[len(tokens) for tokens in one.token_ids] for one in groups] == [[1, 0], [2, 1]]
    assert [one.group.group_id for one in groups] == ["4-0", "4-1"]
    assert [[len(tokens) for tokens in one.rolled.token_ids] for one in made.generate(8)] == [[2, 2], [2, 2]]
    assert made.state() == {"generation": 6, "moments": None, "n_unscored": None}


@pytest.mark.parametrize(("ahead", "begun"), [(1, [0, 1]), (0, [])])
def test_a_rollout_is_begun_ahead_unless_it_is_the_last(ahead, begun):
    """Six steps of two updates a rollout; an engine in this process samples meanwhile, which is no training time."""
    started, timed = [], [True]

    @contextmanager
    def untimed():
        timed.append(False)
        yield
        timed.pop()

    def start_next(step):
        assert not timed[-1]
        started.append(trainer._rollout)

    trainer = SimpleNamespace(
        _rollout=-1,
        _make=lambda step: Experience([[["row"]]] * 2, [], [scored_group(0, [2], [5.0])], np.zeros((1, 2)), {}, 1),
        _cache_metrics=dict,
        state=SimpleNamespace(global_step=0),
        step_metrics=SimpleNamespace(set=lambda metrics: None),
        record=SimpleNamespace(rollout=lambda step, records: None),
        config=SimpleNamespace(rollout_ahead=ahead, kl_coeff=0.0),
        plan=SimpleNamespace(updates_per_rollout=2),
        args=SimpleNamespace(max_steps=6),
        maker=SimpleNamespace(start_next=start_next),
        untimed=untimed,
    )
    for _, index in zip(range(6), StepIndexLoader(2, 1), strict=False):
        assert GroupPolicyTrainer._rows(trainer, index) == ["row"]
    assert started == begun
    assert trainer._rollout == 2


@pytest.mark.parametrize("kept", [0, 10, 0.5, 0.9])
def test_samples_that_cannot_be_read_are_told(tmp_path, kept):
    write_samples(tmp_path, GROUPS)
    content = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(content[: int(kept * len(content)) if kept < 1 else kept])
    with pytest.raises(UserError, match=f"{FILE}' is damaged: use an earlier checkpoint"):
        read_samples(tmp_path)


def test_samples_of_other_prompts_are_not_used():
    items = [rolled.item for rolled in GROUPS]
    assert are_of(SAVED, items, 2)
    assert not are_of(SAVED, items, 3)
    assert not are_of(SAVED, items[::-1], 2)
    assert not are_of(SAVED, items[:1], 2)
    assert not are_of({}, [], 2)


AHEAD = {"rollout_ahead": "1", "lr_scheduler_type": "constant", "warmup_steps": "0"}


@pytest.mark.slow
def test_each_rollout_is_of_the_weights_before_the_update_ahead_of_it(world: TinyWorld, tmp_path: Path) -> None:
    settings = {"max_steps": "3", "save_strategy": "no", "warmup_steps": "0"}
    for name, changes in (("now", {}), ("ahead", AHEAD), ("still", {"learning_rate": "0"})):
        run(one_rank(entry_command(world, tmp_path / name, **{**settings, **changes})))
    now, ahead, still = (_texts(tmp_path / name) for name in ("now", "ahead", "still"))
    assert ahead[1] == now[1] == still[1]
    assert ahead[2] == still[2] != now[2]  # the first two are of the weights that the run starts with
    assert ahead[3] not in (still[3], now[3])
    first, second, _ = metrics_of(tmp_path / "ahead")
    assert first["rollout_is_max"] == pytest.approx(1, abs=1e-4)
    assert second["rollout_is_max"] > 1.01
    assert "rollout_is_max" not in metrics_of(tmp_path / "now")[0]


def _texts(output: Path) -> dict[int, list[list[str]]]:
    """Responses of every group, by step."""
    found: dict[int, list[list[str]]] = {}
    for record in rollouts_of(output):
        found.setdefault(record["step"], []).append([one["response"] for one in record["candidates"]])
    return found


@pytest.mark.slow
def test_killed_ranks_go_on_with_the_samples_they_had_drawn(world: TinyWorld, tmp_path: Path) -> None:
    settings = {"max_steps": "4", "save_steps": "1", **AHEAD}
    run(two_ranks(entry_command(world, tmp_path / "whole", **settings), tmp_path / "logs"))
    command = entry_command(world, tmp_path / "parts", **settings)
    run(two_ranks(killed_at("os.mkdir", "checkpoint-3$", command), tmp_path / "logs"), expect=None)
    assert last_complete_checkpoint(tmp_path / "parts") == tmp_path / "parts/checkpoint-2"
    run(two_ranks(command, tmp_path / "logs"))
    assert rollouts_of(tmp_path / "whole") == rollouts_of(tmp_path / "parts")
    assert _losses(tmp_path / "whole") == _losses(tmp_path / "parts")


def _losses(output: Path) -> list[float]:
    return [line["loss"] for line in metrics_of(output)]
